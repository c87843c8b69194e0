"""Count the source records that an attempt read.

The range of offsets is larger than this count: it includes transaction markers, aborted records,
and records that compaction deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eos.read.planned_offsets import rows_scanned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eos.plan.plan import Plan

_METRIC = "eos.read"


def observed(frame: DataFrame) -> DataFrame:
    """Return the rows with a counter that Spark updates while it reads them."""
    from pyspark.sql import functions as f

    return frame.observe(_METRIC, f.expr("count(1) AS records"))


def scanned(spark: SparkSession, plan: Plan) -> int | None:
    """Return how many rows a stateful query has scanned in this micro-batch, over all attempts so
    far.

    Its steps run in Spark's query, before the rows reach an attempt. Return None for a stateless
    plan, and for a job's own DataFrame, whose sources are not counted.
    """
    is_counted = plan.is_stateful and not plan.is_dataframe
    return rows_scanned(spark, plan.names.pipeline) if is_counted else None


def records_read(
    spark: SparkSession, plan: Plan, job: DataFrame, frame: DataFrame, before: int | None
) -> int | None:
    """Return how many source records the attempt's job read.

    Return None if dedup counts them, or if this version of Spark reports no count. `before` is what
    `scanned` returned before the attempt.
    """
    if plan.dedup is not None:
        return None
    if not plan.is_stateful:
        return visible(job, frame)
    after = scanned(spark, plan)
    return None if before is None or after is None else after - before


def visible(job: DataFrame, frame: DataFrame) -> int:
    """Return how many rows of `frame` the job read. The job must have ended."""
    # The executed plan has the count at once. Spark's Observation would wait for a listener.
    execution: Any = job._jdf.queryExecution()  # noqa: SLF001 - PySpark has no public way
    metrics = execution.observedMetrics()
    if metrics.contains(_METRIC):
        return int(metrics.apply(_METRIC).getLong(0))
    # If a stage turns out to be empty, Spark drops it together with its counters.
    return frame.count()
