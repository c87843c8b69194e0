"""A transaction that outlives its timeout, at each step: never taken for committed, and redone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from support.copies.pipeline_copy import Job
from support.copies.scenes import Outcome, ProxiedKafka, SideBySide, run_copy
from support.doubles import At
from support.errors import in_turn
from support.kafka.brokers import wait_for_state
from support.kafka.proxy_rules import Do

from eos.errors import AttemptFailedError, Recovery

RECORDS = 17  # of each partition: two micro-batches
TIMEOUT_MS = 6_000  # what is not held up is done within it on a busy machine, too
INSIDE = (  # the steps at which a transaction is open
    "first_produce:after",
    "all_acked:before",
    "all_acked:after",
    "ledger_record:before",
    "ledger_record:after",
    "offsets:before",
    "offsets:after",
    "end_txn_sent:before",
)
# The driver's own requests, of which it awaits the answers. (A writer gives up before.)
TOO_LATE = ("Produce", "TxnOffsetCommit", "EndTxn")
Play = Callable[[Callable[[ProxiedKafka, str], None], str], None]  # fixture `side_by_side`


@pytest.fixture(scope="module")
def begun(behind_proxy: ProxiedKafka) -> Iterator[SideBySide]:
    """Rules are for client ids, so that the cases don't meet one another's."""
    made = SideBySide(behind_proxy)
    yield made
    made.close()


@contextmanager
def short(kafka: ProxiedKafka) -> Iterator[tuple[Job, Callable[[], None]]]:
    """A job whose transactions may last some seconds, and what waits until the broker has aborted
    its second micro-batch by itself."""
    job = kafka.job("timeouts", records=RECORDS, transaction_timeout_ms=TIMEOUT_MS)
    client = job.client(".looks")

    def outlived() -> None:
        wait_for_state(client, job.name, "Ongoing")
        wait_for_state(client, job.name, "CompleteAbort")
        seen = kafka.visible(job.target)
        assert {at: len(values) for at, values in seen.items()} == {0: RECORDS, 1: RECORDS}

    try:
        yield job, outlived
    finally:
        client.close()


def check_redone(kafka: ProxiedKafka, job: Job, ended: Outcome) -> None:
    assert ended.error is None
    assert ended.committed == [0, 1]
    assert len(ended.failed) == 1
    kafka.check(job)


def inside(kafka: ProxiedKafka, point: str) -> None:
    with short(kafka) as (job, outlived):
        check_redone(kafka, job, run_copy(job, At(point, outlived, nth=2)))


@pytest.mark.parametrize("point", in_turn(INSIDE, 1))
def test_what_is_outlived_is_redone(side_by_side: Play, point: str) -> None:
    side_by_side(inside, point)


def too_late(kafka: ProxiedKafka, api: str) -> None:
    with short(kafka) as (job, outlived), ThreadPoolExecutor() as pool:
        rule = kafka.proxy.rule(api, Do.HOLD_REQUEST, client=job.name, nth=3)

        def let_go() -> None:
            rule.wait_struck()
            outlived()
            rule.release()

        network = pool.submit(let_go)
        ended = run_copy(job)
        network.result()
        check_redone(kafka, job, ended)


@pytest.mark.parametrize("api", in_turn(TOO_LATE, 1, every=3))
def test_what_arrives_too_late_is_redone(side_by_side: Play, api: str) -> None:
    side_by_side(too_late, api)


@pytest.mark.long
def test_what_never_fits_stops_with_advice_and_is_not_lost(proxied: ProxiedKafka) -> None:
    with short(proxied) as (job, outlived):
        ended = run_copy(job, At("offsets:before", outlived, nth=2, until=4))
        assert isinstance(ended.error, AttemptFailedError)
        assert "transaction.timeout" in ended.error.hint
        assert ended.committed == [0]
        assert len(ended.failed) == 3
        assert run_copy(job).committed == [1]
        proxied.check(job)


def test_a_timeout_above_the_brokers_limit_is_refused(job: Callable[..., Job]) -> None:
    ended = run_copy(job(transaction_timeout_ms=3_600_000))
    assert ended.error is not None
    assert ended.error.recovery is Recovery.STOP
    assert "transaction.max.timeout.ms" in ended.error.hint


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy: ProxiedKafka) -> None:
    behind_proxy.check_logs("timeouts-*.*")
