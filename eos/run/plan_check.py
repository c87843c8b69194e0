"""Can Spark run the plan of this pipeline as a stream?

The check runs before the startup acquires ownership or writes anything to Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eos.errors import TransformError
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.run.plan_warnings import cautions
from eos.spark.dedup_columns import as_stream
from eos.spark.rule_check import require_lasting
from eos.spark.sink_columns import sink_columns
from eos.spark.steps import transformed
from eos.startup.stateful_pipeline import with_state
from eos.transform.plan_check import check_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check(plan: Plan, stream: DataFrame, bus: Bus) -> Plan:
    """Return the plan, marked as stateful if its steps keep state.

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
    for message in cautions(plan, out):
        bus.emit(events.Warned(message))
    return with_state(plan, state, bus)
