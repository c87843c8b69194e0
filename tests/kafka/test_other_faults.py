"""Faults around a run that are no lost answers: other error codes, a cut network, clocks and names.

Each run ends committed or with an error that says so; the next one finishes the work, and in the
end each record is there once, in order.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from support.copies.pipeline_copy import Job
from support.copies.scenes import Outcome, ProxiedKafka, SideBySide, run_copy
from support.doubles import At
from support.errors import in_turn
from support.kafka import kafka_io
from support.kafka.brokers import wait_for_state
from support.kafka.proxy_rules import Do

from eos.errors import Recovery
from eos.transaction import micro_batch

pytestmark = pytest.mark.long

RECORDS = 17  # of each partition: two micro-batches
# The request of the second micro-batch, or before: client id's end, API, and which one of them.
REQUESTS = {
    "fence": ("", "InitProducerId", 1),
    "writer": (".writer", "Produce", 2),
    "ledger": ("", "Produce", 2),
    "offsets": ("", "TxnOffsetCommit", 2),
    "commit": ("", "EndTxn", 2),
}
# Retriable, wrong epoch, fenced, timed out, of no meaning here, not known to any Kafka.
CODES = (7, 15, 19, 45, 47, 48, 51, 90, 120, -1, 999)
CASES = [f"{name}: {code}" for name, code in product(REQUESTS, CODES)]


@pytest.fixture(scope="module")
def begun(behind_proxy: ProxiedKafka) -> Iterator[SideBySide]:
    """Rules are for client ids, so that the cases don't meet one another's."""
    made = SideBySide(behind_proxy)
    yield made
    made.close()


@pytest.fixture
def small(job: Callable[..., Job]) -> Job:
    return job(records=RECORDS, request_timeout_ms=300)


def finished(proxied: ProxiedKafka, job: Job, ended: Outcome) -> None:
    """What the process took for committed is there; the next one does what is left."""
    if ended.error is not None:
        assert ended.error.hint
        assert run_copy(job).error is None
    else:
        assert ended.committed == [0, 1]
    proxied.check(job)


def answered_otherwise(kafka: ProxiedKafka, case: str) -> None:
    """The broker does what it was asked, and its answer arrives with another code."""
    name, code = case.split(": ")
    client, api, nth = REQUESTS[name]
    small = kafka.job("other-codes", records=RECORDS)
    rule = kafka.proxy.rule(api, Do.OTHER_CODE, code=int(code), client=small.name + client, nth=nth)
    ended = run_copy(small)
    assert len(rule.struck) == 1
    finished(kafka, small, ended)


@pytest.mark.parametrize("case", in_turn(CASES, len(CODES), every=3))
def test_any_code_for_any_request_loses_nothing(
    side_by_side: Callable[[Callable[[ProxiedKafka, str], None], str], None], case: str
) -> None:
    side_by_side(answered_otherwise, case)


def test_a_driver_that_is_cut_off_from_its_writers_brokers_commits_nothing(
    proxied: ProxiedKafka, small: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writers are acknowledged, and no request of the driver arrives any more."""
    cut: list[Any] = []

    def cut_off() -> None:
        monkeypatch.setattr(micro_batch, "STEP_TIMEOUT_MS", 2_000)
        cut.append(proxied.proxy.black_hole(client=small.name))

    ended = run_copy(small, At("all_acked:before", cut_off, nth=2))
    assert cut[0].struck
    assert ended.committed == [0]
    assert ended.error is not None
    assert ended.error.recovery in (Recovery.RESTART, Recovery.REDO)
    proxied.proxy.clear_rules()
    monkeypatch.undo()
    finished(proxied, small, ended)


def test_writers_that_are_cut_off_end_the_run_and_the_driver_aborts_the_attempt(
    proxied: ProxiedKafka, job: Callable[..., Job]
) -> None:
    small = job(records=RECORDS, request_timeout_ms=300, transaction_timeout_ms=6_000)
    cut: list[Any] = []

    def cut_off() -> None:
        cut.append(proxied.proxy.black_hole(client=f"{small.name}.writer"))

    ended = run_copy(small, At("begin:after", cut_off, nth=2))
    assert cut[0].struck
    assert ended.committed == [0]
    assert ended.error is not None
    assert ended.error.recovery is Recovery.RESTART
    client = small.client(".looks")
    try:
        wait_for_state(client, small.name, "CompleteAbort", "CompleteCommit", "Empty")
    finally:
        client.close()
    proxied.proxy.clear_rules()
    finished(proxied, small, ended)


POINTS = ["begin:after", "ledger_record:before", "end_txn_sent:before"]


def jump(monkeypatch: pytest.MonkeyPatch, hours: float, jumped: list[int]) -> None:
    """The clock of the driver's machine shows another time from now on."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: jumped.append(0) or real() + hours * 3600)


@pytest.mark.parametrize("hours", [-26, 0.9])
@pytest.mark.parametrize("point", in_turn(POINTS, 1, every=3))
def test_a_clock_that_jumps_changes_nothing(
    proxied: ProxiedKafka, small: Job, monkeypatch: pytest.MonkeyPatch, point: str, hours: float
) -> None:
    jumped: list[int] = []
    ended = run_copy(small, At(point, lambda: jump(monkeypatch, hours, jumped), nth=2))
    monkeypatch.undo()
    assert jumped, "nobody asked the clock after its jump"
    assert ended == Outcome([0, 1], [], None)
    proxied.check(small)


def test_a_clock_that_is_a_day_ahead_is_refused_by_the_broker(
    proxied: ProxiedKafka, small: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics reject timestamps that are later than `message.timestamp.after.max.ms` allows."""
    jumped: list[int] = []
    ended = run_copy(small, At("begin:after", lambda: jump(monkeypatch, 26, jumped), nth=2))
    monkeypatch.undo()
    assert ended.committed == [0]
    assert ended.error is not None
    assert ended.error.code == "kafka_invalid_timestamp"
    finished(proxied, small, ended)


@contextmanager
def nameless(monkeypatch: pytest.MonkeyPatch, times: int) -> Iterator[list[str]]:
    """No name is resolved the next times."""
    real, asked = socket.getaddrinfo, []

    def fails(host: Any, *rest: Any, **named: Any) -> Any:
        if len(asked) < times:
            asked.append(str(host))
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    yield asked
    monkeypatch.setattr(socket, "getaddrinfo", real)


def test_a_name_server_that_is_gone_is_waited_for(
    proxied: ProxiedKafka, small: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections break in the second micro-batch, and for a while no name is resolved."""
    for client in ("", ".writer"):
        proxied.proxy.rule("Produce", Do.CLOSE_BEFORE, client=small.name + client, nth=2)
    with nameless(monkeypatch, 5) as asked:
        ended = run_copy(small)
    assert len(asked) == 5
    assert ended == Outcome([0, 1], [], None)
    proxied.check(small)


def test_what_retention_takes_from_a_target_is_no_concern_of_a_run(
    proxied: ProxiedKafka, small: Job
) -> None:
    """All records of the first micro-batch, and with them the markers, are deleted."""
    admin = AdminClient({"bootstrap.servers": proxied.bootstrap})

    def retain() -> None:
        for partition, end in kafka_io.ends(proxied.bootstrap, small.target).items():
            assert end > RECORDS
            kafka_io.delete_records(admin, small.target, partition, end)

    ended = run_copy(small, At("begin:before", retain, nth=2))
    assert ended == Outcome([0, 1], [], None)
    left = {number: values[RECORDS:] for number, values in proxied.expected.items()}
    assert proxied.visible(small.target) == left


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy: ProxiedKafka) -> None:
    behind_proxy.check_logs("other-*.*")
