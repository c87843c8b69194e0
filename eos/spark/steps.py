"""Which Spark plan results from a pipeline's steps?

The functions build a plan and run nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.plan.plan import Plan
from eos.spark.fused_step import Encode, FusedStep, fused, parsed
from eos.spark.lookup_tables import opened
from eos.spark.python_rows import PythonRows
from eos.spark.sink_columns import sink_columns
from eos.transform.functions import apply, last_in_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transformed(plan: Plan, frame: DataFrame) -> DataFrame:
    """Return the rows after the last step, from the source's rows."""
    return apply(plan.decode.apply(frame), plan.transforms, opened(plan, frame.sparkSession))


def projected(plan: Plan, frame: DataFrame) -> DataFrame:
    """Return the columns that the sinks read, from the source's rows."""
    return sink_columns(transformed(plan, frame), plan, is_packed=True)


def encodable(plan: Plan, frame: DataFrame) -> DataFrame | FusedStep:
    """Return the columns that the sinks read, or the fused last step if there is one."""
    rows, tables = plan.decode.apply(frame), opened(plan, frame.sparkSession)
    last = last_in_batches(rows, plan.transforms, tables)
    short = fused(plan, last) if last else None
    if short:
        return short
    result = last.applied() if last else apply(rows, plan.transforms, tables)
    return sink_columns(result, plan, is_packed=True)


def mapped(rows: DataFrame | FusedStep | PythonRows, encode: Encode, schema: str) -> DataFrame:
    """Return the job that applies `encode` to the rows, in the same pass as a fused step."""
    if isinstance(rows, FusedStep | PythonRows):
        return rows.mapped(encode, schema)
    return rows.mapInArrow(encode, parsed(schema))
