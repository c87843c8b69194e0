"""Translate Spark's plan of a pipeline's steps into steps that Python tasks run on Arrow columns.

Spark has parsed and analyzed the plan: names are resolved, and types are cast. It was not optimized
yet, so it has no values that Spark computed beforehand, such as the present date.
`catalyst_expressions.py` translates the expressions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.spark.catalyst_expressions import Node, UntranslatableError, number, translate, tree
from eos.transform.arrow_steps import Projection, Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRAPPERS = ("SubqueryAlias", "View")
_PLAN_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Translated:
    """The columns of a source in the order of its schema, the steps, and the columns after them.

    Columns are known by Spark's numbers. `needed` are those of the source that are read."""

    source: tuple[int, ...]
    needed: frozenset[int]
    steps: tuple[Projection | Selection, ...]
    result: tuple[
        tuple[str, int, str], ...
    ]  # name, number and Spark type; empty if it is not known


def translated(frame: DataFrame, is_source: Callable[[Node], bool]) -> Translated:
    """Return the steps from the node that `is_source` accepts to `frame`.

    Raise UntranslatableError if Python tasks can't run them."""
    try:
        text = frame._jdf.queryExecution().analyzed().toJSON()  # noqa: SLF001 - no public way
    except Exception as error:
        raise UntranslatableError("Spark can't describe its plan") from error
    if len(text) > _PLAN_BYTES_MAX:
        raise UntranslatableError("the plan is too large")
    node = tree(json.loads(text))
    found: list[Node] = []
    while not is_source(node):
        if node.name not in ("Project", "Filter", *_WRAPPERS):
            raise UntranslatableError(f"Python tasks have no {node.name} of Spark")
        found.append(node)
        (node,) = node.inputs
    source = tuple(number(each) for each in map(tree, node.fields["output"]))
    return _steps(found[::-1], source, _result(found))


def _result(found: Sequence[Node]) -> tuple[tuple[str, int, str], ...]:
    last = next((node for node in found if node.name == "Project"), None)
    if last is None:
        raise UntranslatableError("the plan selects no columns")
    return tuple(
        (each.fields["name"], number(each), translate(each).kind)
        for each in map(tree, last.fields["projectList"])
    )


def _steps(
    nodes: Sequence[Node], source: tuple[int, ...], result: tuple[tuple[str, int, str], ...]
) -> Translated:
    """Translate from the last node to the first, and leave out columns that no later one reads."""
    needed = frozenset(column for _, column, _ in result)
    steps: list[Projection | Selection] = []
    for node in reversed(nodes):
        if node.name == "Filter":
            condition = translate(tree(node.fields["condition"]))
            steps.append(Selection(condition, needed))
            needed |= condition.columns
        elif node.name == "Project":
            computed = tuple(
                (number(each), translate(each))
                for each in map(tree, node.fields["projectList"])
                if each.name == "Alias" and number(each) in needed
            )
            steps.append(Projection(computed, needed))
            needed -= {column for column, _ in computed}
            needed = needed.union(*(each.columns for _, each in computed))
    return Translated(source, needed, tuple(reversed(steps)), result)
