"""Build the Spark plan of a pipeline's steps and sinks. These functions run no job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.errors import TransformError
from eos.plan.plan import Plan
from eos.spark.fused_step import Encode, FusedStep, fused, parsed
from eos.spark.lookup_tables import opened
from eos.spark.python_rows import PythonRows
from eos.spark.sink_columns import sink_columns
from eos.transform.functions import apply, last_in_batches
from eos.transform.nondeterminism import unstable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transformed(plan: Plan, frame: DataFrame) -> DataFrame:
    """Return the rows after the last step. `frame` has the source's rows."""
    return apply(plan.decode.apply(frame), plan.transforms, opened(plan, frame.sparkSession))


def projected(plan: Plan, frame: DataFrame) -> DataFrame:
    """Return the columns that the sinks read, after all steps. `frame` has the source's rows."""
    return sink_columns(transformed(plan, frame), plan, is_packed=True)


def encodable(plan: Plan, frame: DataFrame) -> DataFrame | FusedStep:
    """Return the columns that the sinks read, after all steps.

    If the encode tasks can run the last step themselves, return that step instead."""
    rows, tables = plan.decode.apply(frame), opened(plan, frame.sparkSession)
    last = last_in_batches(rows, plan.transforms, tables)
    short = fused(plan, last) if last else None
    if short:
        return short
    result = last.applied() if last else apply(rows, plan.transforms, tables)
    return sink_columns(result, plan, is_packed=True)


def mapped(rows: DataFrame | FusedStep | PythonRows, encode: Encode, schema: str) -> DataFrame:
    """Return the job whose tasks apply `encode` to the rows.

    For a fused step, the same task first runs the step."""
    if isinstance(rows, FusedStep | PythonRows):
        return rows.mapped(encode, schema)
    return rows.mapInArrow(encode, parsed(schema))


def require_lasting(plan: Plan, stream: DataFrame) -> None:
    """Raise TransformError if a rule of `expect` uses a non-deterministic function.

    Rules are evaluated several times: to write the accepted records, to write the dead letters, and
    again in each retry. Each time they must reject the same records.
    """
    # Without rules, the rows pass unchanged: a job's own DataFrame may use such a function.
    found = () if plan.decode.is_plain else unstable(plan.decode.apply(stream))
    if found:
        functions = ", ".join(found)
        raise TransformError(
            "rule_nondeterministic",
            f"the rules of `expect` use {functions}: a record that was accepted could be rejected "
            "when the rule is evaluated again",
            hint="use only the record's own columns in a rule",
        )
