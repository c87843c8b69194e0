"""Build the log events of an attempt, and classify the error that ended it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from eos.errors import EosError, PromiseBrokenError, Recovery
from eos.kafka.api import Identity
from eos.kafka.read_amounts import ReadAmounts
from eos.ledger.ranges import Decision, PlannedBatch
from eos.ledger.record import AttemptRecord
from eos.observe import events


def reason_of(error: Exception) -> str:
    """Return why an attempt failed: the error's message, with its class if it is no EosError."""
    return error.message if isinstance(error, EosError) else f"{type(error).__name__}: {error}"


def recovery_of(error: Exception) -> Recovery:
    """Return what to do after an error. One that is not of this project stops the run."""
    return error.recovery if isinstance(error, EosError) else Recovery.STOP


def explains(failed: Exception, error: Exception) -> bool:
    """Return whether to raise the abort's error `failed` instead of the attempt's `error`: if
    another instance took over, or if the promise is broken and `error` alone would not stop the
    run."""
    if not isinstance(failed, EosError):
        return False
    is_broken = isinstance(failed, PromiseBrokenError) and recovery_of(error) is not Recovery.STOP
    return failed.recovery is Recovery.FENCED or is_broken


def start(
    number: int, step: PlannedBatch, decision: Decision, identity: Identity
) -> events.AttemptStarted:
    offsets_in = _offsets_by_topic(step, decision)
    return events.AttemptStarted(step.batch_id, number, *identity, offsets_in)


def failure(
    batch_id: int,
    number: int,
    error: Exception,
    identity: Identity,
    will_redo: bool,
    is_requested: bool,
) -> events.AttemptFailed:
    producer_id, epoch = identity
    fields = error.fields if isinstance(error, EosError) else {}
    return events.AttemptFailed(
        batch_id=batch_id,
        attempt=number,
        reason=reason_of(error),
        will_redo=will_redo,
        is_requested=is_requested,
        code=error.code if isinstance(error, EosError) else "unexpected_error",
        api=fields.get("api", ""),
        kafka_error=fields.get("kafka_error_name", ""),
        producer_id=producer_id,
        epoch=epoch,
    )


def rejection(error: EosError) -> events.RequestRejected:
    fields = error.fields
    return events.RequestRejected(
        str(fields.get("api", "")), str(fields.get("kafka_error_name", ""))
    )


def committed_event(
    step: PlannedBatch,
    decision: Decision,
    attempt: AttemptRecord,
    marks: Sequence[float],
    ledger_end: int,
    amounts: ReadAmounts,
) -> events.MicroBatchCommitted:
    """Return the event for a committed attempt.

    `marks` are five points in time, in seconds: the begin, and the ends of its four steps (writing
    the records, the ledger record, the group offsets, EndTxn). If two jobs read the records, such
    as dedup before the write, `amounts` has them twice. Then the records by topic are unknown.
    """
    run_ms, ledger_ms, offsets_ms, end_ms = (
        (after - before) * 1000 for before, after in pairwise(marks)
    )
    producer_id, epoch = attempt.identity
    records_out = _sums((receipt.topic, receipt.records) for receipt in attempt.receipts)
    bytes_out = _sums((receipt.topic, receipt.bytes) for receipt in attempt.receipts)
    offsets_in = _offsets_by_topic(step, decision)
    return events.MicroBatchCommitted(
        batch_id=step.batch_id,
        attempt=attempt.number,
        offsets_in=sum(offsets_in.values()),
        records_in=attempt.records_read,
        records_out=sum(records_out.values()),
        bytes_out=sum(bytes_out.values()),
        run_ms=run_ms,
        ledger_ms=ledger_ms,
        offsets_ms=offsets_ms,
        end_ms=end_ms,
        producer_id=producer_id,
        epoch=epoch,
        ledger_end=ledger_end,
        offsets_in_by_topic=offsets_in,
        records_out_by_topic=records_out,
        bytes_out_by_topic=bytes_out,
        records_in_by_topic=(
            dict(amounts.records) if amounts.records.total() == attempt.records_read else {}
        ),
        bytes_in_by_topic=dict(amounts.bytes),
    )


def _offsets_by_topic(step: PlannedBatch, decision: Decision) -> Mapping[str, int]:
    return _sums((tp.topic, end - decision.starts[tp]) for tp, end in step.ends.items())


def _sums(pairs: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for topic, count in pairs:
        found[topic] += count
    return dict(found)
