"""How many source records an attempt read. A range of offsets has more: transaction markers,
aborted records, and what compaction deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eos.read.planned_offsets import rows_scanned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eos.plan.plan import Plan

_METRIC = "eos.read"


def observed(frame: DataFrame) -> DataFrame:
    """Return the rows with a counter beside them, which costs no pass of its own."""
    from pyspark.sql import functions as f

    return frame.observe(_METRIC, f.expr("count(1) AS records"))


def scanned(spark: SparkSession, plan: Plan) -> int | None:
    """Return how many rows the query of a stateful plan has scanned in this micro-batch, by all
    attempts together. Its steps run in the query, before the rows reach an attempt."""
    return rows_scanned(spark, plan.names.pipeline) if plan.is_stateful else None


def records_read(
    spark: SparkSession, plan: Plan, job: DataFrame, frame: DataFrame, before: int | None
) -> int | None:
    """Return how many source records the attempt's job read; None: dedup counts them, or this Spark
    does not say. `before`: what was scanned before the attempt."""
    if plan.dedup is not None:
        return None
    if not plan.is_stateful:
        return visible(job, frame)
    after = scanned(spark, plan)
    return None if before is None or after is None else after - before


def visible(job: DataFrame, frame: DataFrame) -> int:
    """Return how many rows of `frame` the job read, which has just ended."""
    # The plan that ran knows at once. An Observation would wait for a listener.
    execution: Any = job._jdf.queryExecution()  # noqa: SLF001 - PySpark has no public way
    metrics = execution.observedMetrics()
    if metrics.contains(_METRIC):
        return int(metrics.apply(_METRIC).getLong(0))
    # Spark drops a stage that turns out to be empty, and its counters with it.
    return frame.count()
