"""Offsets that Spark planned for the current micro-batch.

The driver commits the offsets in the checkpoint's file `offsets/N`. Spark writes its plan to that
file, but reads the source according to the plan in memory. So the running query's plan is compared
with the file. They can differ if the store's rename is not atomic:

1. Spark plans micro-batch N and writes `offsets/N`.
2. Another instance with the same checkpoint overwrites `offsets/N` with other offsets.
3. The driver reads that instance's offsets. A commit with them would lose or repeat records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eos.checkpoint.offset_log import Ranges, parse_offsets
from eos.errors import UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCAN = "MicroBatchScanExec"


def require_planned(
    spark: SparkSession, query: str, location: str, batch_id: int, found: Ranges
) -> None:
    """Raise UnavailableError if the offsets `found` in the checkpoint's file differ from Spark's
    plan.

    A commit with the file's offsets would lose or repeat records.
    """
    planned = planned_ranges(spark, query)
    if planned is None or planned == found:
        return
    difference = _difference(planned, found)
    raise UnavailableError(
        "checkpoint_offsets_mismatch",
        f"{query}: in the checkpoint {location}, the offsets of micro-batch {batch_id} differ from "
        f"Spark's plan: {difference}",
        hint="another instance or another program wrote to the checkpoint: stop it, then start the "
        "pipeline again. Nothing of this micro-batch was written",
        path=location,
    )


def planned_ranges(spark: SparkSession, query: str) -> Ranges | None:
    """Return the offsets that Spark planned for the current micro-batch of the named query.

    Return None if this version of Spark has no such plan, or if there are no new records. Call this
    inside `foreachBatch`: only there the query's last execution belongs to the current micro-batch.
    """
    from py4j.protocol import Py4JError

    running = next((each for each in spark.streams.active if each.name == query), None)
    if running is None:
        return None
    java: Any = running._jsq  # noqa: SLF001 - PySpark has no public way to a query's plan
    try:
        leaves = java.streamingQuery().lastExecution().logical().collectLeaves()
        # Other leaves are tables that steps read. If there are no new records, no leaf is a stream.
        every = (leaves.apply(number) for number in range(leaves.size()))
        leaf = next((each for each in every if _is_stream(each)), None)
        if leaf is None:
            return None
        starts, ends = leaf.startOffset().get().json(), leaf.endOffset().get().json()
    except Py4JError:  # another version of Spark, with another form of plan
        return None
    found, until = (parse_offsets(each) for each in (starts, ends))
    return Ranges({tp: offset for tp, offset in found.items() if tp in until}, until)


def rows_scanned(spark: SparkSession, query: str) -> int | None:
    """Return how many rows of the source the current micro-batch has scanned so far.

    Return None if this version of Spark does not report it. If a step reads the source twice, the
    plan has two scans of the same rows, and they count once. Call this inside `foreachBatch`.
    """
    from py4j.protocol import Py4JError

    running = next((each for each in spark.streams.active if each.name == query), None)
    if running is None:
        return None
    java: Any = running._jsq  # noqa: SLF001 - PySpark has no public way to a query's plan
    try:
        leaves = java.streamingQuery().lastExecution().executedPlan().collectLeaves()
        every = (leaves.apply(number) for number in range(leaves.size()))
        scans = [each for each in every if each.getClass().getSimpleName() == _SCAN]
        counts = [int(each.metrics().apply("numOutputRows").value()) for each in scans]
        return max(counts, default=0)
    except Py4JError:  # another version of Spark, with another form of plan
        return None


def _is_stream(leaf: Any) -> bool:
    return str(leaf.getClass().getSimpleName()).startswith("StreamingDataSourceV2")


def _difference(planned: Ranges, found: Ranges) -> str:
    """Describe the first partition whose range differs. Precondition: the two ranges differ."""
    both = ((planned.starts, found.starts), (planned.ends, found.ends))
    every = sorted({tp for side in both for offsets in side for tp in offsets})
    differing = (tp for tp in every if any(a.get(tp) != b.get(tp) for a, b in both))
    tp = next(differing)
    ours, theirs = ([each.get(tp) for each in side] for side in zip(*both, strict=True))
    return f"{tp.topic}-{tp.partition} {_range(ours)} in the plan, {_range(theirs)} in the file"


def _range(bounds: Sequence[int | None]) -> str:
    start, end = ("(none)" if each is None else str(each) for each in bounds)
    return f"from {start} to {end}"
