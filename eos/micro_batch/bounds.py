"""The end of a run with `--until`: in each source partition, the offset before which it reads.

Spark plans micro-batches up to the source's end. So the driver cuts a planned micro-batch at the
bounds, and Spark's checkpoint is then ahead of the ledger. A later run must not resume with that
checkpoint. Therefore the ledger record of a cut micro-batch has `is_reset`: the next run begins at
the ledger's ends, with a fresh checkpoint. The record is part of the micro-batch's transaction, so
this also holds after a crash.
"""

from __future__ import annotations

from eos.checkpoint.offset_log import Ranges
from eos.deadline import Deadline
from eos.errors import UsageError
from eos.kafka.client import KafkaClient
from eos.ledger.record import Ends
from eos.plan.plan import Plan
from eos.startup.start_offsets import offsets_at


class BoundsReachedError(Exception):
    """A planned micro-batch has no record before the bounds. This ends Spark's query before Spark
    notes the micro-batch as committed."""


class Bounds:
    """The offsets before which a run reads. They are fixed when the run begins."""

    def __init__(self, ends: Ends, position: Ends) -> None:
        # A partition that is past its bound already is read no further.
        self._ends = {tp: max(end, position.get(tp, end)) for tp, end in ends.items()}

    def cut(self, planned: Ranges) -> Ranges:
        """Return the part of the planned ranges before the bounds."""
        for tp in planned.ends:
            # A partition that was created after the run began is left to the next run.
            self._ends.setdefault(tp, planned.starts.get(tp, 0))
        starts = {tp: min(start, self._ends.get(tp, start)) for tp, start in planned.starts.items()}
        ends = {tp: min(end, self._ends[tp]) for tp, end in planned.ends.items()}
        return Ranges(starts, ends)

    def left(self, position: Ends) -> int:
        """Return how many offsets before the bounds are not committed at this position."""
        return sum(max(0, end - position.get(tp, end)) for tp, end in self._ends.items())

    def require_more(self, cut: Ranges, position: Ends) -> None:
        """Raise BoundsReachedError if nothing of a cut micro-batch is left to read."""
        starts = {tp: max(cut.starts.get(tp, 0), position.get(tp, 0)) for tp in cut.ends}
        if all(end <= starts[tp] for tp, end in cut.ends.items()):
            raise BoundsReachedError


def find_bounds(
    client: KafkaClient, until_ms: int | None, starts: Ends, position: Ends, deadline: Deadline
) -> Bounds | None:
    """Return the bounds of a run that reads the records before a time; None without a time.

    `starts` has all partitions of the source. A partition without a record of that time or a later
    one is read up to its present end.
    """
    if until_ms is None:
        return None
    return Bounds(offsets_at(until_ms, starts, client, deadline), position)


def require_cuttable(planned: Plan, until_ms: int | None) -> None:
    """Raise UsageError if the run has a bound and the pipeline keeps state.

    Spark updates the state with all rows of a planned micro-batch, so no part of it can be left to
    the next run.
    """
    if until_ms is not None and planned.is_stateful:
        name = planned.names.pipeline
        raise UsageError(
            "until_with_state",
            f"{name}: --until can't be used, because the pipeline's steps keep state",
            hint="run it without --until; or write the records before that time to a topic with a "
            "stateless pipeline, and read that topic",
            pipeline=name,
        )
