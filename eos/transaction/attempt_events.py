"""What the events of an attempt contain: why it failed, or what it committed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from eos.errors import EosError
from eos.ledger.ranges import Decision, PlannedBatch
from eos.ledger.receipt import Receipt
from eos.observe import events


def reason_of(error: Exception) -> str:
    """Return why an attempt failed, in one sentence."""
    return error.message if isinstance(error, EosError) else f"{type(error).__name__}: {error}"


def committed_event(
    number: int,
    step: PlannedBatch,
    decision: Decision,
    receipts: Sequence[Receipt],
    records_read: int | None,
    marks: Sequence[float],
) -> events.MicroBatchCommitted:
    """Return the event of an attempt that committed; `marks` are the times between its steps."""
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
