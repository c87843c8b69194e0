"""Is a checkpoint older than the ledger, so that a fresh one may replace it?

A checkpoint is older than the ledger in these cases: it was restored from a copy, another machine
ran the pipeline since, or a power failure removed its newest files. A stateless pipeline loses and
repeats nothing with a fresh checkpoint at the ledger's ends. But the ledger must cover all
micro-batches that the checkpoint records as committed. Otherwise the checkpoint is ahead of the
ledger, and an operator has to decide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from eos.checkpoint.offset_log import Checkpoint
from eos.errors import PromiseBrokenError
from eos.ledger import ranges
from eos.ledger.ranges import PlannedBatch
from eos.ledger.record import Ends, Position
from eos.plan.plan import Plan

_EMPTY_MAX = 1_000  # how many of the newest files are searched for one with content


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The first micro-batch of a run that resumes with a checkpoint.

    If Spark has not planned the micro-batch yet, its ends are unknown: `step.ends` equals
    `step.starts` then.
    """

    step: PlannedBatch
    is_planned: bool


def upcoming(checkpoint: Checkpoint) -> Upcoming:
    """Return the first micro-batch of the next run: the newest planned one, or its successor if
    Spark has committed it."""
    planned, committed = checkpoint.planned(), checkpoint.committed()
    assert planned is not None, "a checkpoint that a run resumes with has planned something"
    query_id, is_opaque = checkpoint.query_id(), checkpoint.is_opaque
    if committed is None or committed < planned:
        ranges = checkpoint.ranges(planned)
        step = PlannedBatch(query_id, planned, ranges.starts, ranges.ends, is_opaque=is_opaque)
        return Upcoming(step, is_planned=True)
    starts = checkpoint.ends(planned)
    step = PlannedBatch(query_id, planned + 1, starts, starts, is_opaque=is_opaque)
    return Upcoming(step, is_planned=False)


def is_older(planned: Plan, checkpoint: Checkpoint, position: Position) -> bool:
    """Return whether the checkpoint is older than the ledger: its first micro-batch ends before the
    ledger's end in at least one partition, and begins after it in none.

    A partition that only the ledger has also makes the checkpoint older.
    """
    step = upcoming(checkpoint).step
    known = position.ends
    rest = {
        tp: end
        for tp, end in step.ends.items()
        if tp not in known or (tp in step.starts and known[tp] <= end)
    }
    try:
        _decide(planned, position, step)
    except PromiseBrokenError as error:
        if error.code != "beyond":
            return False
    else:
        return not known.keys() <= step.ends.keys()  # the ledger has more partitions
    try:
        _decide(planned, position, replace(step, ends=rest))
    except PromiseBrokenError:
        return False  # the checkpoint is ahead of the ledger in another partition
    return True


def require_level(planned: Plan, checkpoint: Checkpoint, position: Position) -> None:
    """Raise PromiseBrokenError if the checkpoint's first micro-batch does not fit the ledger. Only
    this machine's files are read. For a stateless pipeline, call `is_older` first."""
    if checkpoint.planned() is None:
        return
    found = upcoming(checkpoint)
    step = replace(found.step, is_stateful=planned.is_stateful)
    _decide(planned, position, step)
    if (step.is_opaque or step.is_stateful) and not found.is_planned:
        ranges.require_not_behind(planned.names.pipeline, position, step)


def is_cut_short(checkpoint: Checkpoint, position: Position) -> bool:
    """Return whether a power failure emptied a file that the next run reads, while the ledger has
    all offsets that the checkpoint records as committed."""
    newest, committed = checkpoint.planned(), checkpoint.committed()
    if newest is None:
        return False
    empty = [f"offsets/{newest}", f"offsets/{newest - 1}", f"commits/{committed}", "metadata"]
    if not any(checkpoint.is_empty(name) for name in empty):
        return False
    if committed is not None and _is_of_query(checkpoint, position):
        return position.batch_id >= committed
    last = next(
        (
            number
            for number in range(newest, max(-1, newest - _EMPTY_MAX), -1)
            if not checkpoint.is_empty(f"offsets/{number}")
        ),
        None,
    )
    if last is None:
        return committed is None  # true if the checkpoint has no commit at all
    if committed is not None and committed > last:
        return False
    return _covers(position, _ends(checkpoint, last))


def _decide(planned: Plan, position: Position, step: PlannedBatch) -> None:
    # Assume that new partitions still have their first records. Only the cluster knows that, and
    # this module must not ask it.
    starts = {tp: step.starts[tp] for tp in ranges.unknown(position, step)}
    ranges.decide(planned.names.pipeline, position, step, starts)


def _is_of_query(checkpoint: Checkpoint, position: Position) -> bool:
    try:
        return checkpoint.query_id() == position.query_id
    except PromiseBrokenError:
        return False


def _ends(checkpoint: Checkpoint, number: int) -> Ends | None:
    try:
        return checkpoint.ends(number)
    except PromiseBrokenError:
        return None


def _covers(position: Position, ends: Ends | None) -> bool:
    return ends is not None and all(position.ends.get(tp, -1) >= end for tp, end in ends.items())
