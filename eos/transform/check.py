"""May this plan run as a stream, one micro-batch at a time, without state?

A stateless pipeline runs its transforms on the rows of a micro-batch, where Spark would allow
anything, and a plain GROUP BY would quietly group each micro-batch by itself. So the same
transforms are first applied to the stream, and that plan is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eos.errors import TransformError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATEFUL = {
    "Aggregate": "a group, an aggregate or distinct()",
    "Distinct": "distinct()",
    "Deduplicate": "dropDuplicates()",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark()",
    "Except": "exceptAll() or subtract()",
    "FlatMapGroupsInArrow": "applyInArrow() on a group",
    "FlatMapGroupsInPandas": "applyInPandas() on a group",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState()",
    "FlatMapGroupsWithState": "a function with state on a group",
    "GlobalLimit": "limit()",
    "Intersect": "intersect()",
    "Join": "a join of two streams",
    "LocalLimit": "limit()",
    "Offset": "offset()",
    "Sort": "a sort",
    "Tail": "tail()",
    "TransformWithState": "transformWithState()",
    "TransformWithStateInPySpark": "transformWithState()",
    "Window": "a window function",
}
# Operators that treat each row, or each partition of a micro-batch, by itself. One that is not
# here is refused: the next Spark may add a stateful one under a name that nobody knows yet.
# fmt: off
_STATELESS = frozenset({
    "ArrowEvalPython", "BatchEvalPython", "CTERelationDef", "CTERelationRef", "CollectMetrics",
    "DeserializeToObject", "EventTimeWatermark", "Expand", "Filter", "Generate", "Join",
    "MapElements", "MapInArrow", "MapInPandas", "MapPartitions", "PipeOperator", "Project",
    "RebalancePartitions", "Repartition", "RepartitionByExpression", "ResolvedHint",
    "ScriptTransformation", "SerializeFromObject", "StreamingRelation", "StreamingRelationV2",
    "SubqueryAlias", "TypedFilter", "Union", "View", "WithCTE",
})
# fmt: on
_NODES_MAX = 10_000


def check_stateless(frame: DataFrame) -> None:
    """Refuses what Spark would refuse as a stream, and what keeps state between micro-batches."""
    if not frame.isStreaming:
        raise TransformError(
            "the transforms return rows that don't come from the pipeline's source",
            hint="return a DataFrame that is made from the one that was handed in",
        )
    # Plans are Spark's own business: Python sees them through the JVM only.
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    stateful = next((name for name in _streaming(plan) if name in _STATEFUL), None)
    _check_as_spark(frame, plan, stateful)
    if stateful is not None:
        raise TransformError(
            f"stateful pipelines are not supported by this release: the transforms use "
            f"{_STATEFUL[stateful]} (Spark's operator {stateful})",
            hint="treat each record by itself, and group what the pipeline wrote",
            operator=stateful,
        )
    unknown = next((name for name in _streaming(plan) if name not in _STATELESS), None)
    if unknown is not None:
        raise TransformError(
            f"the transforms use Spark's operator {unknown}, which is not known to be stateless",
            hint="express it with select, where, explode or mapInArrow",
            operator=unknown,
        )


def _check_as_spark(frame: DataFrame, plan: Any, stateful: str | None) -> None:
    from pyspark.errors import AnalysisException

    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan, jvm.org.apache.spark.sql.streaming.OutputMode.Append())
    except AnalysisException as error:
        words = str(error).split(";\n")[0].split("\n\nJVM stacktrace")[0].strip()
        raise TransformError(
            f"Spark refuses the transforms as a stream: {words}",
            hint=(
                f"they use {_STATEFUL[stateful]} (Spark's operator {stateful}); stateful "
                "pipelines are not supported by this release"
                if stateful
                else "use operations that treat each record by itself"
            ),
            operator=stateful or "",
        ) from error


def _streaming(plan: Any) -> Iterator[str]:
    """Names of the operators that a stream flows into, from the top. Static tables are free."""
    for node in walked(plan):
        if not node.isStreaming():
            continue
        name = str(node.nodeName())
        # A stream joined with a table looks up each row by itself.
        if name != "Join" or all(child.isStreaming() for child in _list(node.children())):
            yield name


def walked(plan: Any) -> Iterator[Any]:
    """All operators of a plan, from the top."""
    waiting = [plan]
    for _ in range(_NODES_MAX):
        if not waiting:
            return
        node = waiting.pop()
        yield node
        waiting.extend(reversed(_list(node.children())))
        waiting.extend(_list(node.subqueries()))
    raise TransformError(f"the transforms' plan has more than {_NODES_MAX} operators")


def _list(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.length())]
