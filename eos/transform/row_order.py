"""Up to where the steps keep the source's order: the first shuffle of the rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBERS = re.compile(r"#\d+L?|, \[plan_id=\d+\]")  # of Spark's own, other ones each time
_EXCHANGE = re.compile(r"^[\s:+*()\d-]*Exchange (?P<how>[^\n]*)$", re.MULTILINE)


def first_shuffle(frame: DataFrame) -> str:
    """How Spark would deal the rows out anew, in its own words; empty if it leaves them where they
    are. What it sends to every task (a broadcast) moves no row of the source. Runs nothing. The
    frame is no stream, as that of a micro-batch is none, and has several partitions: in one
    nothing has to move."""
    jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - PySpark only prints plans
    execution: Any = frame._jdf.queryExecution()  # noqa: SLF001 - the same
    text = str(jvm.PythonSQLUtils.explainString(execution, "simple"))
    found = _EXCHANGE.findall(text)
    return _NUMBERS.sub("", found[-1]).strip() if found else ""  # it is printed from its end
