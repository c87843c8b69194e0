"""A plan's steps applied to its source's rows: builds Spark's plan and runs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.plan.plan import Plan
from eos.spark.fused_dedup import FusedDedup
from eos.spark.fused_step import Encode, FusedStep, fused, parsed
from eos.spark.lookup_tables import opened
from eos.spark.sink_columns import sink_columns
from eos.transform.functions import apply, last_in_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transformed(plan: Plan, frame: DataFrame) -> DataFrame:
    return apply(plan.decode.apply(frame), plan.transforms, opened(plan, frame.sparkSession))


def projected(plan: Plan, frame: DataFrame) -> DataFrame:
    """From the source's rows to the columns that the sinks read."""
    return sink_columns(transformed(plan, frame), plan, is_packed=True)


def encodable(plan: Plan, frame: DataFrame) -> DataFrame | FusedStep:
    """The same, or what leads there without Spark."""
    rows, tables = plan.decode.apply(frame), opened(plan, frame.sparkSession)
    last = last_in_batches(rows, plan.transforms, tables)
    short = fused(plan, last) if last else None
    if short:
        return short
    made = last.applied() if last else apply(rows, plan.transforms, tables)
    return sink_columns(made, plan, is_packed=True)


def mapped(rows: DataFrame | FusedStep | FusedDedup, encode: Encode, schema: str) -> DataFrame:
    """What a task makes of the rows: in the same pass of Python, where they are part of one."""
    if isinstance(rows, FusedStep | FusedDedup):
        return rows.mapped(encode, schema)
    return rows.mapInArrow(encode, parsed(schema))
