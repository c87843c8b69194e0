"""A Produce that arrives after its attempt has ended: refused, or it shares that one's fate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import ProxiedKafka, run_copy
from support.doubles import At
from support.kafka import kafka_io
from support.kafka.proxy_rules import Do, Rule

from eos.deadline import Deadline
from eos.errors import AttemptFailedError, Recovery
from eos.kafka.api import TopicPartition

RECORDS = 17  # of each partition: two micro-batches


@pytest.fixture
def small(job: Callable[..., Job]) -> Job:
    return job(records=RECORDS)


def written(proxied: ProxiedKafka, job: Job) -> int:
    """All that lies in the target, whatever became of it."""
    return len(kafka_io.read(proxied.bootstrap, job.target, "read_uncommitted"))


@pytest.mark.long
def test_of_a_writer_that_gave_up_it_is_refused(proxied, job):
    """What it sent first is answered; what it sent then is on its way while all else is lost."""
    small = job(records=RECORDS, request_timeout_ms=300, transaction_timeout_ms=5_000)
    held: list[Rule] = []
    writer = f"{small.name}.writer"

    def cut_off() -> None:
        held.append(proxied.proxy.rule("Produce", Do.HOLD_REQUEST, client=writer, nth=2))
        proxied.proxy.rule("Produce", Do.DROP_REQUEST, client=writer, nth=2, times=10_000)
        held.append(proxied.proxy.rule("WriteTxnMarkers", Do.NOTHING))

    ended = run_copy(small, At("begin:after", cut_off, nth=2))
    produce, marker = held
    assert ended.error is not None
    assert ended.error.recovery is Recovery.RESTART
    assert ended.committed == [0]
    marker.wait_answered()
    before = written(proxied, small)
    produce.release()
    produce.wait_answered()
    assert written(proxied, small) == before
    proxied.proxy.clear_rules()
    assert run_copy(small).committed == [1]
    proxied.check(small)


@pytest.mark.parametrize("moment", ["before the marker", "after it", "in the next transaction"])
def test_what_was_committed_is_not_written_twice(proxied, small, moment):
    proxy, ghosts = proxied.proxy, []
    produce = proxy.rule("Produce", Do.NOTHING, client=f"{small.name}.writer")
    markers = proxy.rule("WriteTxnMarkers", Do.HOLD_REQUEST, nth=2, times=10)
    if moment != "before the marker":
        markers.release()

    def haunt() -> None:
        before = written(proxied, small)
        ghosts.append(produce.repeat())
        assert written(proxied, small) == before
        markers.release()

    point = "ledger_record:after" if "next" in moment else "end_txn_answered:after"
    ended = run_copy(small, At(point, haunt, nth=2 if "next" in moment else 1))
    assert ghosts
    assert ended.error is None
    proxied.check(small)


@pytest.mark.parametrize(
    ("point", "do", "error"),
    [
        ("begin:after", Do.NOTHING, 47),
        ("all_acked:before", Do.NOTHING, 47),
        ("all_acked:before", Do.HOLD_REQUEST, 0),
    ],
    ids=["nothing was sent", "after the marker", "before the marker"],
)
def test_a_straggler_never_joins_the_redo(proxied, small, make_batch, point, do, error):
    """An abort takes an epoch, an empty one too. Only until its marker is written the broker takes
    more into the old transaction, and ends it with the rest: there receipts protect a commit."""
    sequence = 0 if point == "begin:after" else proxied.ends[0] - RECORDS
    straggler = []
    markers = proxied.proxy.rule("WriteTxnMarkers", do, nth=3, times=10)  # start, first, aborted

    def fail() -> None:
        straggler.append(make_batch(copy.coordinator.identity, sequence, b"late"))
        raise AttemptFailedError("example", "on purpose")

    def straggle() -> None:
        if sequence:
            (markers.wait_struck if error == 0 else markers.wait_answered)()
        batch = {TopicPartition(small.target, 0): straggler[0]}
        (answer,) = copy.writers.produce(small.name, batch, Deadline.after_ms(120_000)).values()
        straggler.append(answer.error)
        markers.release()

    class Late(At):
        def reached(self, reached: str) -> None:
            super().reached(reached)
            if reached == "begin:before" and len(straggler) == 1:
                straggle()

    with Copy(small, Late(point, fail, nth=2)) as copy:
        copy.start()
        copy.drain()
        copy.stop()
    assert straggler[1] == error
    proxied.check(small)


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy):
    behind_proxy.check_logs("late-produce-*.*")
