"""While a user's function builds its plan, what would run or change something is refused.

A transform is called on a stream (to check it) and again for each attempt: an action inside would
read the source outside of the transaction, and again with every redo; a changed session would
change the next micro-batch. Only the thread that is inside a transform is held to it.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eos.errors import TransformError

_ACTION = "return the DataFrame without it; what counts, collects or looks belongs into a test"
_WRITE = "return the DataFrame: its rows go to the sinks that the pipeline file names"
_KEEP = "return the DataFrame without it: the framework evaluates it once for all sinks"
_VIEW = 'name the DataFrame in the query: spark.sql("SELECT ... FROM {rows}", rows=frame)'
_SESSION = "Spark settings belong into the profile, under spark.conf"
_UDF = "call the function object that udf() or pandas_udf() returns"

# fmt: off
_FRAME_METHODS = {
    **dict.fromkeys([
        "approxQuantile", "collect", "corr", "count", "cov", "crosstab", "first", "foreach",
        "foreachPartition", "freqItems", "head", "isEmpty", "pandas_api", "show", "tail", "take",
        "toArrow", "toLocalIterator", "toPandas",
    ], _ACTION),
    **dict.fromkeys(["mergeInto", "write", "writeStream", "writeTo"], _WRITE),
    **dict.fromkeys(["cache", "checkpoint", "localCheckpoint", "persist", "unpersist"], _KEEP),
    **dict.fromkeys([
        "createGlobalTempView", "createOrReplaceGlobalTempView", "createOrReplaceTempView",
        "createTempView", "registerTempTable",
    ], _VIEW),
}
_SESSION_METHODS = {
    "readStream": "a pipeline has one stream: its source. Join tables with spark.table or read",
    "stop": "the framework ends the session",
}
_CATALOG_METHODS = dict.fromkeys([
    "cacheTable", "clearCache", "createTable", "dropGlobalTempView", "dropTempView",
    "setCurrentCatalog", "setCurrentDatabase", "uncacheTable",
], "change the catalog outside of the pipeline")
# fmt: on


# With comments and brackets before it. Anything else is a command, which Spark runs at once.
_QUERY = re.compile(
    r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:select|with|from|values|table)\b", re.IGNORECASE | re.DOTALL
)


class _Inside(threading.local):
    function: str = ""


_inside = _Inside()
_lock = threading.Lock()
_depth = 0
_originals: list[tuple[type, str, Any]] = []


@contextmanager
def guarded(function: str) -> Iterator[None]:
    """Refuses actions and session changes of this thread, in the name of `function`."""
    before = _inside.function
    _install()
    _inside.function = function
    try:
        yield
    finally:
        _inside.function = before
        _remove()


def _install() -> None:
    global _depth
    with _lock:
        _depth += 1
        if _depth > 1:
            return
        from pyspark.sql import SparkSession

        for owner, methods in _blocked():
            for name, remedy in methods.items():
                original = owner.__dict__.get(name)
                if original is None:
                    continue  # another Spark release, or inherited from what is blocked itself
                _originals.append((owner, name, original))
                setattr(owner, name, _refusing(owner.__name__, name, original, remedy))
        _originals.append((SparkSession, "sql", SparkSession.sql))
        setattr(SparkSession, "sql", _queries_only(SparkSession.sql))  # noqa: B010 - for mypy


def _remove() -> None:
    global _depth
    with _lock:
        _depth -= 1
        if _depth == 0:
            while _originals:
                owner, name, original = _originals.pop()
                setattr(owner, name, original)


def _blocked() -> list[tuple[type, dict[str, str]]]:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.catalog import Catalog
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.conf import RuntimeConfig
    from pyspark.sql.udf import UDFRegistration

    return [
        (DataFrame, _FRAME_METHODS),
        (SparkSession, _SESSION_METHODS),
        (SparkContext, {"stop": _SESSION_METHODS["stop"], "setLogLevel": _SESSION}),
        (RuntimeConfig, {"set": _SESSION, "unset": _SESSION}),
        (Catalog, _CATALOG_METHODS),
        (UDFRegistration, dict.fromkeys(("register", "registerJavaFunction"), _UDF)),
    ]


def _refuse(call: str, remedy: str) -> None:
    if _inside.function:
        raise TransformError(
            f"transform `{_inside.function}` calls `{call}`, which runs or changes something; "
            "a transform only describes what becomes of the rows",
            hint=remedy,
        )


def _refusing(owner: str, name: str, original: Any, remedy: str) -> Any:
    """The original for every other thread, an error for one that is inside a transform."""
    call = f"{owner}.{name}"
    if isinstance(original, property):

        def read(self: Any) -> Any:
            _refuse(call, remedy)
            return original.__get__(self)

        return property(read, doc=original.__doc__)

    inner: Callable[..., Any] = original

    @functools.wraps(inner)
    def method(*args: Any, **kwargs: Any) -> Any:
        _refuse(call, remedy)
        return inner(*args, **kwargs)

    return method


def _queries_only(original: Callable[..., Any]) -> Callable[..., Any]:
    """`spark.sql` for a query, not for a command."""

    @functools.wraps(original)
    def sql(self: Any, query: str, *args: Any, **kwargs: Any) -> Any:
        if not _QUERY.match(query):
            _refuse("SparkSession.sql", "only queries (SELECT, WITH, FROM ...) are allowed here")
        # `FROM {rows}` with a DataFrame is a view for Spark while it parses the query.
        before, _inside.function = _inside.function, ""
        try:
            return original(self, query, *args, **kwargs)
        finally:
            _inside.function = before

    return sql
