"""A transaction that outlives its timeout, at each step: never taken for committed, and redone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.coordinator_view import wait_for
from support.copy import Job
from support.played import At
from support.proxied import ProxiedKafka, run
from support.proxy import Do

from eos.errors import AttemptFailedError, Recovery

RECORDS = 17  # of each partition: two micro-batches
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


@pytest.fixture
def short(job: Callable[..., Job]) -> Job:
    """Its transactions may last two seconds."""
    return job(records=RECORDS, transaction_timeout_ms=2_000)


@pytest.fixture
def outlived(proxied: ProxiedKafka, short: Job) -> Iterator[Callable[[], None]]:
    """Waits until the broker has aborted the second micro-batch by itself."""
    wire = short.wire(".looks")

    def wait() -> None:
        wait_for(wire, short.name, "Ongoing")
        wait_for(wire, short.name, "CompleteAbort")
        seen = proxied.visible(short.target)
        assert {at: len(values) for at, values in seen.items()} == {0: RECORDS, 1: RECORDS}

    yield wait
    wire.close()


@pytest.mark.parametrize("point", INSIDE)
def test_what_is_outlived_is_redone(
    proxied: ProxiedKafka, short: Job, outlived: Callable[[], None], point: str
) -> None:
    ended = run(short, At(point, outlived, nth=2))
    assert ended.error is None
    assert ended.committed == [0, 1]
    assert len(ended.failed) == 1
    proxied.check(short)


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_what_arrives_too_late_is_redone(
    proxied: ProxiedKafka, short: Job, outlived: Callable[[], None], api: str
) -> None:
    """The driver's own requests, of which it awaits the answers. (A writer gives up before.)"""
    rule = proxied.proxy.rule(api, Do.HOLD_REQUEST, client=short.name, nth=3)

    def let_go() -> None:
        rule.wait_struck()
        outlived()
        rule.release()

    with ThreadPoolExecutor() as pool:
        network = pool.submit(let_go)
        ended = run(short)
        network.result()
    assert ended.error is None
    assert ended.committed == [0, 1]
    assert len(ended.failed) == 1
    proxied.check(short)


def test_what_never_fits_stops_with_advice_and_is_not_lost(
    proxied: ProxiedKafka, short: Job, outlived: Callable[[], None]
) -> None:
    ended = run(short, At("offsets:before", outlived, nth=2, until=4))
    assert isinstance(ended.error, AttemptFailedError)
    assert "transaction timeout" in ended.error.hint
    assert ended.committed == [0]
    assert len(ended.failed) == 3
    assert run(short).committed == [1]
    proxied.check(short)


def test_a_timeout_above_the_brokers_limit_is_refused(job: Callable[..., Job]) -> None:
    ended = run(job(transaction_timeout_ms=3_600_000))
    assert ended.error is not None
    assert ended.error.recovery is Recovery.STOP
    assert "transaction.max.timeout.ms" in ended.error.hint


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy: ProxiedKafka) -> None:
    behind_proxy.check_logs("timeouts-*.*")
