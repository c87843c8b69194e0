"""Check that Spark can run the pipeline's plan as a stream.

The check runs before the startup acquires ownership or writes anything to Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eos.config.trigger import LIMITS
from eos.errors import TransformError, UsageError
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.spark.dedup_columns import as_stream
from eos.spark.session import slots
from eos.spark.sink_columns import sink_columns
from eos.spark.spark_4_0 import detects_changed_rows
from eos.spark.steps import require_lasting, transformed
from eos.startup.stateful_pipeline import with_state
from eos.transform.nondeterminism import unstable
from eos.transform.plan_check import check_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check(plan: Plan, stream: DataFrame, bus: Bus) -> Plan:
    """Return the plan, marked as stateful if its steps keep state. Emit warnings about it.

    Raise TransformError for a plan that Spark or this release does not support in a stream.
    """
    stream = as_stream(stream, plan.dedup)
    rows = transformed(plan, stream)
    state = check_stream(rows, plan.output_mode)
    out = sink_columns(rows, plan)
    if plan.outputs.columns and check_stream(out, plan.output_mode).operators != state.operators:
        raise TransformError(
            "sink_expression_aggregates",
            "a sink's expressions group rows, or drop duplicates",
            hint="a sink's expression computes from one row; aggregate rows in a step",
        )
    require_lasting(plan, stream)
    require_repeatable(out)
    for message in _warnings(plan, out):
        bus.emit(events.Warned(message))
    found = with_state(plan, state, bus)
    if found.is_stateful and found.bytes_max is not None:
        name = plan.names.pipeline
        raise UsageError(
            "max_bytes_with_state",
            f"{name}: `source.kafka.max_bytes` can't be used, because the pipeline's steps keep "
            "state: Spark updates the state with all rows of a micro-batch, so no part of it can "
            "be left to another transaction",
            hint="remove it, and set `max_records` so low that a micro-batch of your largest "
            "records still fits a transaction",
            pipeline=name,
        )
    return found


def require_repeatable(out: DataFrame) -> None:
    """Raise TransformError if a stage that Spark repeats could return other rows unnoticed.

    After the loss of an executor, Spark repeats a part of a finished stage. If a function returns
    other values then, rows may be shuffled elsewhere, and so be lost or doubled. Since Spark 4.1
    the checksums that `session.py` requires detect this.
    """
    spark = out.sparkSession
    if detects_changed_rows(spark) or slots(spark):  # in one JVM no executor is lost alone
        return
    plan: Any = out._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark has no public way
    if not plan.deterministic():
        raise TransformError(
            "transform_not_repeatable",
            f"the rows depend on {', '.join(unstable(out))}, and Spark {spark.version} does not "
            "detect that a stage which it repeats after the loss of an executor returns other rows",
            hint="run on Spark 4.1 or later, or in one JVM (`local[*]`), or remove the function",
        )


def _warnings(plan: Plan, out: DataFrame) -> Iterator[str]:
    """Yield warnings about a plan that can run. `out` has the rows that the sinks read."""
    changing = unstable(out)
    if changing:
        yield (
            f"the transforms use {', '.join(changing)}: a micro-batch that is retried gets "
            "other values"
        )
    # The loader rejects a pipeline file with both settings, so `--once` comes from the command
    # line.
    for name in LIMITS if plan.is_once else ():
        if name in plan.source.model_fields_set:
            yield (
                f"{plan.names.pipeline}: --once reads all records in one micro-batch, so "
                f"`{name}: {getattr(plan.source, name)}` of the pipeline file is ignored. Use "
                "--available-now to keep it"
            )
