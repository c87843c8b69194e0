"""Check that the transforms can run as a stream, and whether they keep state between micro-batches.

A stateless pipeline applies its transforms to the rows of one micro-batch. There Spark would allow
any operation. A GROUP BY, for instance, would silently group within each micro-batch only. So the
transforms are first applied to the stream, and the resulting plan is checked here. If that plan
keeps state, the pipeline runs it as its streaming query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
# Operators that treat each row, or each partition of a micro-batch, on its own. Operators that are
# in no list are rejected, since a newer Spark may add a stateful operator under an unknown name.
# fmt: off
_STATELESS = frozenset({
    "ArrowEvalPython", "BatchEvalPython", "CTERelationDef", "CTERelationRef", "CollectMetrics",
    "DeserializeToObject", "EventTimeWatermark", "Expand", "Filter", "Generate", "Join",
    "MapElements", "MapInArrow", "MapInPandas", "MapPartitions", "PipeOperator", "Project",
    "RebalancePartitions", "Repartition", "RepartitionByExpression", "ResolvedHint",
    "ScriptTransformation", "SerializeFromObject", "StreamingRelation", "StreamingRelationV2",
    "SubqueryAlias", "TypedFilter", "Union", "View", "WithCTE",
})
# Stateful operators that are supported. The others are not: limit() counts over the whole stream,
# and Spark itself rejects the rest.
_RUNS = frozenset({
    "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct",
    "FlatMapGroupsInPandasWithState", "Join", "TransformWithState", "TransformWithStateInPySpark",
})
# fmt: on
_REMOVE = {
    "GlobalLimit": "remove LIMIT or limit(): a stream has no end",
    "LocalLimit": "remove LIMIT or limit(): a stream has no end",
    "Sort": "remove ORDER BY or orderBy(): a topic keeps the order of records by key only",
}
# Operators that keep all their state, unless a watermark lets them forget old rows.
_GROWING = frozenset({"Aggregate", "Deduplicate", "Distinct", "Join"})
_NODES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class PlanState:
    """The state that a plan keeps between micro-batches.

    `operators` are the names of Spark's stateful operators in the plan, none if it is stateless.
    `branches` is how many times a stateful plan reads the source.
    """

    operators: tuple[str, ...] = ()
    is_bounded: bool = True  # a watermark or the user's function bounds the state
    branches: int = 1

    def __str__(self) -> str:
        return ", ".join(dict.fromkeys(_STATEFUL[name] for name in self.operators))


def check_stream(frame: DataFrame, output_mode: str) -> PlanState:
    """Return the state that the stream `frame` keeps between micro-batches.

    Raise TransformError if Spark does not support its plan as a stream, or if the plan has an
    operator that is not known to work.
    """
    if not frame.isStreaming:
        raise TransformError(
            "transform_not_from_source",
            "the transforms return rows that don't come from the pipeline's source",
            hint="derive the returned DataFrame from the one that the function receives",
        )
    # PySpark has no public way to a plan, so it is read from the JVM.
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    names = list(_streaming(plan))
    stateful = [name for name in names if name in _STATEFUL]
    _check_as_spark(frame, plan, output_mode, stateful)
    refused = next((name for name in stateful if name not in _RUNS), None)
    if refused is not None:
        feature = _STATEFUL[refused]
        fix = _REMOVE.get(
            refused,
            "group by keys and a time window with a watermark, or process each record alone",
        )
        raise TransformError(
            "stateful_operator_unsupported",
            f"the transforms use {feature} (Spark's operator {refused}), which is not supported",
            hint=fix,
            operator=refused,
        )
    unknown = next((name for name in names if name not in _STATELESS | _RUNS), None)
    if unknown is not None:
        raise TransformError(
            "operator_unknown",
            f"the transforms use Spark's operator {unknown}, which is not known to be stateless",
            hint="express it with select, where, explode or mapInArrow",
            operator=unknown,
        )
    is_growing = bool(_GROWING & set(stateful)) and "EventTimeWatermark" not in names
    branches = _branches(plan) if stateful else 1
    return PlanState(tuple(stateful), is_bounded=not is_growing, branches=branches)


def _branches(plan: Any) -> int:
    """Return how many times the plan reads the source.

    Raise TransformError if it reads more than one streaming source. Spark would plan offsets for
    each source, but the ledger has one position.
    """
    leaves = [
        node for node in operators_of(plan) if node.isStreaming() and not as_list(node.children())
    ]
    if any(not leaf.equals(leaves[0]) for leaf in leaves):
        raise TransformError(
            "stream_sources_multiple",
            "the transforms join several streams, which Spark would read as separate sources, each "
            "with its own offsets",
            hint="derive both sides of the join from the input rows (`filter` by `topic`), and "
            "read no other stream",
        )
    return len(leaves)


def _check_as_spark(frame: DataFrame, plan: Any, output_mode: str, stateful: list[str]) -> None:
    from pyspark.errors import AnalysisException

    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        mode = modes.Update() if output_mode == "update" else modes.Append()
        checker.checkForStreaming(plan, mode)
    except AnalysisException as error:
        reason = str(error).split(";\n")[0].split("\n\nJVM stacktrace")[0].strip()
        hint = "use operations that process each record alone"
        if stateful:
            fix = _REMOVE.get(
                stateful[0],
                "add withWatermark(), which completes a group, or set `output_mode: update`",
            )
            hint = f"they use {_STATEFUL[stateful[0]]} (Spark's operator {stateful[0]}): {fix}"
        raise TransformError(
            "stream_unsupported",
            f"Spark can't run the transforms as a stream: {reason}",
            hint=hint,
            operator=stateful[0] if stateful else "",
        ) from error


def _streaming(plan: Any) -> Iterator[str]:
    """Yield the names of the operators that process streaming rows, from the top of the plan.

    Operators on static tables alone are not included.
    """
    for node in operators_of(plan):
        if not node.isStreaming():
            continue
        name = str(node.nodeName())
        # A join of a stream with a table keeps no state: it looks up each row on its own.
        if name != "Join" or all(child.isStreaming() for child in as_list(node.children())):
            yield name


def operators_of(plan: Any) -> Iterator[Any]:
    """Yield all operators of a Spark plan, from the top, with those of its subqueries.

    Raise TransformError if there are more than 10,000."""
    waiting = [plan]
    for _ in range(_NODES_MAX):
        if not waiting:
            return
        node = waiting.pop()
        yield node
        waiting.extend(reversed(as_list(node.children())))
        waiting.extend(as_list(node.subqueries()))
    raise TransformError(
        "plan_too_large",
        f"the transforms' plan has more than {_NODES_MAX} operators",
        hint="look for a loop that multiplies steps; use fewer steps, or a second pipeline that "
        "reads this one's topic",
    )


def as_list(found: Any) -> list[Any]:
    """Return a Scala sequence as a list."""
    return [found.apply(number) for number in range(found.length())]
