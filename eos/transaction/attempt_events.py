"""Build the log events of an attempt: the reason of its failure, or the figures of its commit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from eos.errors import EosError
from eos.ledger.ranges import Decision, PlannedBatch
from eos.ledger.receipt import Receipt
from eos.observe import events


def reason_of(error: Exception) -> str:
    """Return why an attempt failed: the error's message, with its class if it is no EosError."""
    return error.message if isinstance(error, EosError) else f"{type(error).__name__}: {error}"


def committed_event(
    number: int,
    step: PlannedBatch,
    decision: Decision,
    receipts: Sequence[Receipt],
    records_read: int | None,
    marks: Sequence[float],
) -> events.MicroBatchCommitted:
    """Return the event for a committed attempt.

    `marks` are five points in time, in seconds: the begin, and the ends of its four steps (writing
    the records, the ledger record, the group offsets, EndTxn).
    """
    run_ms, ledger_ms, offsets_ms, end_ms = (
        (after - before) * 1000 for before, after in pairwise(marks)
    )
    return events.MicroBatchCommitted(
        batch_id=step.batch_id,
        attempt=number,
        offsets_in=sum(end - decision.starts[tp] for tp, end in step.ends.items()),
        records_in=records_read,
        records_out=sum(receipt.records for receipt in receipts),
        bytes_out=sum(receipt.bytes for receipt in receipts),
        run_ms=run_ms,
        ledger_ms=ledger_ms,
        offsets_ms=offsets_ms,
        end_ms=end_ms,
    )
