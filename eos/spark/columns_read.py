"""Find the columns of the source that a query needs.

Spark's optimizer removes unused columns from its own sources, but it does not ask Python tasks for
fewer columns. A column that the optimized plan does not contain has no influence on the result. So
the tasks that read Kafka need not send it to the JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Nodes without inputs that can't hide the source. A cached result could: its plan is not visible.
_LEAVES = frozenset({"LocalRelation", "LogicalRelation", "OneRowRelation", "Range"})


def columns_read(out: DataFrame) -> frozenset[str] | None:
    """Return the names of the columns of `ArrowSource.frame` that `out` is computed from.

    Return None if all of them may be needed."""
    found: set[str] = set()
    is_found = False
    nodes: list[Any] = [out._jdf.queryExecution().optimizedPlan()]  # noqa: SLF001 - no public way
    while nodes:
        node = nodes.pop()
        children = _listed(node.children())
        if not children and node.nodeName() not in _LEAVES:
            return None
        nodes += _listed(node.subqueries())
        for child in children:
            if not _is_source(child):
                nodes.append(child)
            elif node.nodeName() == "Project":
                found |= {each.name() for each in _listed(node.references().toSeq())}
                is_found = True
            else:
                return None
    return frozenset(found) if is_found else None


def _is_source(node: Any) -> bool:
    """Return whether a node of the plan is the tasks that read Kafka: they read task numbers."""
    return bool(node.nodeName() == "MapInArrow" and node.child().nodeName() == "Range")


def _listed(found: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [found.apply(index) for index in range(found.size())]
