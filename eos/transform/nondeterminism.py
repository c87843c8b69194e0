"""Which parts of a plan would not give the same rows again.

A micro-batch that fails is redone from the same offsets. Nothing of the first attempt is visible,
so the promise holds; but who compares two runs, or an output with its input, finds other values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eos.transform.plan_check import walked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EXPRESSIONS_MAX = 10_000


def unstable(frame: DataFrame) -> tuple[str, ...]:
    """Names of functions in the frame's plan, in Python steps as in SQL, each once."""
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - plans are Spark's own business
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if plan.deterministic() and not plan.containsPattern(clock):
        return ()
    return tuple(dict.fromkeys(_names(plan, clock)))


def _names(plan: Any, clock: Any) -> Iterator[str]:
    waiting = [each for node in walked(plan) for each in _list(node.expressions())]
    for _ in range(_EXPRESSIONS_MAX):
        if not waiting:
            return
        part = waiting.pop()
        if part.deterministic() and not part.containsPattern(clock):
            continue
        inner = [
            each
            for each in _list(part.children())
            if not each.deterministic() or each.containsPattern(clock)
        ]
        if inner:
            waiting.extend(inner)
        else:
            yield str(part.prettyName())


def _list(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.length())]
