"""What Spark is about to read in this micro-batch, asked of the running query and not of its files.

Spark writes `offsets/N` and reads what it has planned in memory; we read the file. Where two copies
write one checkpoint and the store's rename is not atomic, the file may be another's by then.
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
    """Stops if the file says something else: by its ends rows would be repeated or lost."""
    planned = planned_ranges(spark, query)
    if planned is None or planned == found:
        return
    raise UnavailableError(
        f"{query}: the checkpoint {location} has other offsets for micro-batch {batch_id} than "
        f"Spark planned: {_error_text(planned, found)}",
        hint="another copy or another program wrote there: end it. Of this micro-batch nothing was "
        "written: start again",
        path=location,
    )


def planned_ranges(spark: SparkSession, query: str) -> Ranges | None:
    """Of the micro-batch that the query of this name is in; None where this Spark does not tell.

    To be called inside of `foreachBatch`: the query's last execution is then this micro-batch's.
    """
    from py4j.protocol import Py4JError

    running = next((each for each in spark.streams.active if each.name == query), None)
    if running is None:
        return None
    java: Any = running._jsq  # noqa: SLF001 - PySpark has no public way to a query's plan
    try:
        leaves = java.streamingQuery().lastExecution().logical().collectLeaves()
        # Beside what a step reads otherwise. Without any new record there is no such leaf.
        every = (leaves.apply(number) for number in range(leaves.size()))
        leaf = next((each for each in every if _is_stream(each)), None)
        if leaf is None:
            return None
        starts, ends = leaf.startOffset().get().json(), leaf.endOffset().get().json()
    except Py4JError:  # another Spark, whose plans have another form
        return None
    found, until = (parse_offsets(each) for each in (starts, ends))
    return Ranges({tp: offset for tp, offset in found.items() if tp in until}, until)


def rows_scanned(spark: SparkSession, query: str) -> int | None:
    """Return how many rows of the source the current micro-batch has scanned; None: this Spark does
    not say. A step that reads the source twice has two scans of all of its rows.

    To be called inside of `foreachBatch`, as `planned_ranges`.
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
    except Py4JError:  # another Spark, whose plans have another form
        return None


def _is_stream(leaf: Any) -> bool:
    return str(leaf.getClass().getSimpleName()).startswith("StreamingDataSourceV2")


def _error_text(planned: Ranges, found: Ranges) -> str:
    """The first partition in which they differ; they do."""
    both = ((planned.starts, found.starts), (planned.ends, found.ends))
    every = sorted({tp for side in both for offsets in side for tp in offsets})
    differing = (tp for tp in every if any(a.get(tp) != b.get(tp) for a, b in both))
    tp = next(differing)
    ours, theirs = ([each.get(tp) for each in side] for side in zip(*both, strict=True))
    return f"{tp.topic}-{tp.partition} {_range(ours)}, and the file has it {_range(theirs)}"


def _range(bounds: Sequence[int | None]) -> str:
    start, end = ("nowhere" if each is None else str(each) for each in bounds)
    return f"from {start} to {end}"
