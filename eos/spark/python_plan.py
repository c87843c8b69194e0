"""Decide whether Python tasks can process the source's records alone, without the JVM."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eos.spark.fused_step import SAFE, sink_rows
from eos.spark.python_rows import PythonPlan
from eos.transform.functions import batch_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from eos.plan.plan import Plan

_EXTENSION_INTS = "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"
_TIME_ZONE = "spark.sql.session.timeZone"


def python_plan(plan: Plan, spark: SparkSession, source: StructType) -> PythonPlan | None:
    """Return how tasks process the source's records in Python alone, or None if that needs the JVM.

    `source` has the columns of Spark's Kafka source.
    """
    decode, dedup = plan.decode, plan.dedup
    if plan.is_stateful or len(plan.transforms) > 1:
        return None
    if dedup is not None and dedup.needs_sql:
        return None
    if not decode.is_plain or decode.distinct is not None:
        return None
    if not plan.transforms:
        rows = sink_rows(plan, source, source, None, "arrow")
        return None if rows is None else PythonPlan(rows)
    step = batch_step(plan.transforms[0], source.fields)
    if step is None:
        return None
    kind, part, after = step
    rows = sink_rows(plan, source, after, part, kind)
    if rows is None:
        return None
    zone = str(spark.conf.get(_TIME_ZONE))
    if kind == "arrow":
        return PythonPlan(rows, time_zone=zone)
    if spark.conf.get(_EXTENSION_INTS, "false") == "true":
        return None  # only Spark's own conversion makes pandas' extension integers
    rows = replace(rows, is_safe=spark.conf.get(SAFE, "true") == "true")
    return PythonPlan(rows, kind, zone, source)
