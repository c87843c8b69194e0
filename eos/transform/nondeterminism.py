"""Find the functions in a Spark plan that may give other rows when a micro-batch is retried.

Exactly-once still holds with such functions: a retry reads the same offsets, and no read_committed
reader sees the first attempt's records. But two runs on the same input write different values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eos.transform.plan_check import as_list, operators_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXPRESSIONS_MAX = 10_000


def is_unstable(frame: DataFrame) -> bool:
    """Return whether the frame's plan has a non-deterministic function, in Python or in SQL."""
    plan, clock = _plan_and_clock(frame)
    return not plan.deterministic() or bool(plan.containsPattern(clock))


def unstable(frame: DataFrame) -> tuple[str, ...]:
    """Return the names of the non-deterministic functions in the frame's plan, each once."""
    return tuple(dict.fromkeys(_names(*_plan_and_clock(frame)))) if is_unstable(frame) else ()


def _plan_and_clock(frame: DataFrame) -> tuple[Any, Any]:
    """Return Spark's plan, and the pattern of functions such as `current_timestamp`."""
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - PySpark has no public way
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    return frame._jdf.queryExecution().analyzed(), clock  # noqa: SLF001


def _names(plan: Any, clock: Any) -> Iterator[str]:
    """Yield the names of the innermost expressions that vary. In a huge plan, those that the first
    `_EXPRESSIONS_MAX` expressions have."""

    def varying(expressions: Any) -> list[Any]:
        found = as_list(expressions)
        return [each for each in found if not each.deterministic() or each.containsPattern(clock)]

    waiting = [each for node in operators_of(plan) for each in varying(node.expressions())]
    for _ in range(_EXPRESSIONS_MAX):
        if not waiting:
            return
        part = waiting.pop()
        inner = varying(part.children())
        if inner:
            waiting.extend(inner)
        else:
            yield str(part.prettyName())
