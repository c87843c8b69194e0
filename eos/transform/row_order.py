"""Find the first shuffle in a plan: up to it, rows keep the source's order.

In a shuffle Spark redistributes rows among tasks.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBERS = re.compile(r"#\d+L?|, \[plan_id=\d+\]")  # Spark's ids, which change each time
_EXCHANGE = re.compile(r"^[\s:+*()\d-]*Exchange (?P<how>[^\n]*)$", re.MULTILINE)


def first_shuffle(frame: DataFrame) -> str:
    """Return Spark's description of the first shuffle in the frame's plan; empty without a shuffle.

    A broadcast of another table does not count, since it moves no row of the source. No job is run.
    The frame must not be a stream, and must have several partitions: Spark plans no shuffle for a
    single one.
    """
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - PySpark can only print a plan
    execution: Any = frame._jdf.queryExecution()  # noqa: SLF001 - the same
    text = str(jvm.PythonSQLUtils.explainString(execution, "simple"))
    found = _EXCHANGE.findall(text)
    # Spark prints a plan from its last operator to its first.
    return _NUMBERS.sub("", found[-1]).strip() if found else ""
