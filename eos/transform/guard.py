"""Reject Spark actions and changes of the session while a user's function (transform) runs.

A transform is called once on a stream, to check it, and again in each attempt. An action in it,
such as `count()`, would read the source outside the transaction, and again in every retry. A
changed session would affect the next micro-batch. So calls that run a job or change the session
raise TransformError. This applies only to the thread that is inside a transform.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eos.errors import TransformError
from eos.sql_text import is_query

_ACTION = "remove the call: code that counts, collects or prints rows belongs in a test"
_WRITE = "remove the call and return the DataFrame: the pipeline file's sinks write its rows"
_KEEP = "remove the call: the framework evaluates the DataFrame once for all sinks"
_VIEW = 'name the DataFrame in the query: spark.sql("SELECT ... FROM {rows}", rows=frame)'
_SESSION = "set Spark's settings in the profile, under spark.conf"
_BUILD = f"frame.sparkSession is the session; {_SESSION}"
_UDF = "call the function object that udf() or pandas_udf() returns"
_UDTF = "call the function object that udtf() returns"
_JAVA = (
    "give Spark the jar and register the function outside of the pipeline, or write it in Python"
)
_SOURCE = "register it before the pipeline runs, or join a table of the pipeline file's `tables`"
_ROWS = "use DataFrames: the rows of an RDD are not part of the stream and the transaction"
_ENDS = "the framework ends the session"
_FILES = "name files under spark.conf in the profile: spark.files, spark.submit.pyFiles, spark.jars"
_JOBS = "the framework names and cancels the jobs of an attempt"
_STREAMS = "a pipeline has one query, which the framework starts and stops"
_CATALOG = "change the catalog outside of the pipeline"
_PIVOT = "name the values: pivot(column, [value, ...]); else Spark runs a job to find them"

# fmt: off
_FRAME_METHODS = {
    **dict.fromkeys([
        "approxQuantile", "collect", "corr", "count", "cov", "crosstab", "first", "foreach",
        "foreachPartition", "freqItems", "head", "isEmpty", "pandas_api", "plot", "show", "tail",
        "take", "toArrow", "toLocalIterator", "toPandas", "transpose",
    ], _ACTION),
    **dict.fromkeys(["mergeInto", "write", "writeStream", "writeTo"], _WRITE),
    **dict.fromkeys(["cache", "checkpoint", "localCheckpoint", "persist", "unpersist"], _KEEP),
    **dict.fromkeys([
        "createGlobalTempView", "createOrReplaceGlobalTempView", "createOrReplaceTempView",
        "createTempView", "registerTempTable",
    ], _VIEW),
    **dict.fromkeys(["rdd", "toJSON"], _ROWS),
    "sql_ctx": "frame.sparkSession is the session",
}
_SESSION_METHODS = {
    "readStream": "a pipeline has one stream: its source. Join tables with spark.table or read",
    "streams": _STREAMS,
    "stop": _ENDS,
    **dict.fromkeys(["addArtifact", "addArtifacts", "copyFromLocalToFs"], _FILES),
    **dict.fromkeys([
        "addTag", "clearProgressHandlers", "clearTags", "interruptAll", "interruptOperation",
        "interruptTag", "registerProgressHandler", "removeProgressHandler", "removeTag",
    ], _JOBS),
}
# `SparkSession.builder.getOrCreate()` returns the running session, and applies to it the settings
# from the builder's `config`. So `config` is rejected. The methods in `_LABELS` call `config`, too,
# but are allowed, since their settings don't affect a running session.
_BUILDER_METHODS = dict.fromkeys(["config", "create", "remote"], _BUILD)
_LABELS = ("appName", "master", "enableHiveSupport")
_CONTEXT_METHODS = {
    "stop": _ENDS,
    **dict.fromkeys(["setCheckpointDir", "setLogLevel", "setSystemProperty"], _SESSION),
    **dict.fromkeys(["addArchive", "addFile", "addPyFile"], _FILES),
    **dict.fromkeys([
        "addJobTag", "cancelAllJobs", "cancelJobGroup", "cancelJobsWithTag", "clearJobTags",
        "removeJobTag", "setInterruptOnCancel", "setJobDescription", "setJobGroup",
        "setLocalProperty",
    ], _JOBS),
    "runJob": _ACTION,
    # These run a job that reads the first record.
    **dict.fromkeys([
        "hadoopFile", "hadoopRDD", "newAPIHadoopFile", "newAPIHadoopRDD", "sequenceFile",
    ], _ROWS),
}
# Methods of RDDs that SparkContext creates.
_RDD_METHODS = {
    **dict.fromkeys([
        "aggregate", "collect", "collectAsMap", "collectWithJobGroup", "count", "countApprox",
        "countApproxDistinct", "countByKey", "countByValue", "first", "fold", "foreach",
        "foreachPartition", "histogram", "isEmpty", "lookup", "max", "mean", "meanApprox", "min",
        "reduce", "reduceByKeyLocally", "sampleStdev", "sampleVariance", "saveAsHadoopDataset",
        "saveAsHadoopFile", "saveAsNewAPIHadoopDataset", "saveAsNewAPIHadoopFile",
        "saveAsPickleFile", "saveAsSequenceFile", "saveAsTextFile", "sortBy", "sortByKey", "stats",
        "stdev", "sum", "sumApprox", "take", "takeOrdered", "takeSample", "toLocalIterator", "top",
        "treeAggregate", "treeReduce", "variance", "zipWithIndex",
    ], _ROWS),
    **dict.fromkeys([
        "cache", "checkpoint", "cleanShuffleDependencies", "localCheckpoint", "persist",
        "unpersist",
    ], _ROWS),
}
_CATALOG_METHODS = {
    **dict.fromkeys([
        "analyzeTable", "cacheTable", "clearCache", "createDatabase", "createExternalTable",
        "createTable", "dropDatabase", "dropGlobalTempView", "dropTable", "dropTempView",
        "dropView", "recoverPartitions", "refreshByPath", "refreshTable", "setCurrentCatalog",
        "setCurrentDatabase", "truncateTable", "uncacheTable",
    ], _CATALOG),
    "registerFunction": _UDF,
}
_UDF_METHODS = {"register": _UDF, "registerJavaFunction": _JAVA, "registerJavaUDAF": _JAVA}
# fmt: on


class _Inside(threading.local):
    function: str = ""


_inside = _Inside()
_lock = threading.Lock()
_depth = 0
_originals: list[tuple[type, str, Any]] = []


@contextmanager
def guard(function: str) -> Iterator[None]:
    """Reject Spark actions and session changes in this thread, for the duration of the context.

    Errors name the transform `function`."""
    before = _inside.function
    _install()
    try:
        _inside.function = function
        yield
    finally:
        _inside.function = before
        _remove()


def _install() -> None:
    global _depth
    with _lock:
        _depth += 1
        try:
            for owner, name, instead in _replacements() if _depth == 1 else ():
                _originals.append((owner, name, owner.__dict__[name]))
                setattr(owner, name, instead)
        except BaseException:  # perhaps an interrupt: the next guard has to install all of them
            _uninstall()
            raise


@functools.cache
def _replacements() -> list[tuple[type, str, Any]]:
    """Return the replacements of all guarded methods: (class, method, replacement).

    Cached, since they are installed for every step of every micro-batch.
    """
    from pyspark.sql import GroupedData, SparkSession

    found = []
    for owner, methods in blocked():
        for name, remedy in methods.items():
            original = owner.__dict__.get(name)
            if original is None:
                continue  # this Spark release lacks the method, or the class only inherits it
            found.append((owner, name, _refusing(owner.__qualname__, name, original, remedy)))
    for name in _LABELS:
        original = SparkSession.Builder.__dict__[name]
        found.append((SparkSession.Builder, name, _allow_inside(original)))
    found.append((SparkSession, "sql", _queries_only(SparkSession.sql)))
    found.append((GroupedData, "pivot", _require_pivot_values(GroupedData.pivot)))
    return found


def _remove() -> None:
    with _lock:
        _uninstall()


def _uninstall() -> None:
    global _depth
    _depth -= 1
    while _originals and not _depth:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def blocked() -> list[tuple[type, dict[str, str]]]:
    """Return the methods of each Spark class that a transform must not call, each with a remedy.

    Other methods that a transform can reach run no job and change nothing.
    `tests/pure/test_transform_guard.py` lists these.
    """
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.catalog import Catalog
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.conf import RuntimeConfig
    from pyspark.sql.datasource import DataSourceRegistration
    from pyspark.sql.udf import UDFRegistration
    from pyspark.sql.udtf import UDTFRegistration

    return [
        (DataFrame, _FRAME_METHODS),
        (SparkSession, _SESSION_METHODS),
        (SparkSession.Builder, _BUILDER_METHODS),
        (SparkContext, _CONTEXT_METHODS),
        (RDD, _RDD_METHODS),
        (RuntimeConfig, {"set": _SESSION, "unset": _SESSION}),
        (Catalog, _CATALOG_METHODS),
        (UDFRegistration, _UDF_METHODS),
        (UDTFRegistration, {"register": _UDTF}),
        (DataSourceRegistration, {"register": _SOURCE}),
    ]


def _refuse(call: str, remedy: str) -> None:
    function = _inside.function
    if function:
        raise TransformError(
            "transform_call_forbidden",
            f"transform `{function}` calls `{call}`, which runs a job or changes the Spark "
            "session; a transform may only describe how rows are transformed",
            hint=remedy,
        )


def _refusing(owner: str, name: str, original: Any, remedy: str) -> Any:
    """Return a replacement of a method or property that raises if a transform uses it.

    Outside of transforms the replacement calls the original.
    """
    call = f"{owner}.{name}"
    if isinstance(original, property | functools.cached_property):

        def read(self: Any) -> Any:
            _refuse(call, remedy)  # also if the value is cached, since a property hides the cache
            return original.__get__(self)

        return property(read, doc=original.__doc__)

    if isinstance(original, classmethod):
        return classmethod(_refusing(owner, name, original.__func__, remedy))
    inner: Callable[..., Any] = original

    @functools.wraps(inner)
    def method(*args: Any, **kwargs: Any) -> Any:
        _refuse(call, remedy)
        return inner(*args, **kwargs)

    return method


def _queries_only(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `spark.sql` that accepts queries and rejects commands."""
    allowed = _allow_inside(original)

    @functools.wraps(original)
    def sql(self: Any, query: str, *args: Any, **kwargs: Any) -> Any:
        if not is_query(query):
            _refuse("SparkSession.sql", "only queries (SELECT, WITH, FROM ...) are allowed here")
        # If the query names a DataFrame, as in `FROM {rows}`, PySpark creates a temporary view for
        # it. Inside a transform that method is rejected, so `allowed` switches the check off while
        # `spark.sql` runs.
        return allowed(self, query, *args, **kwargs)

    return sql


def _allow_inside(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of the method `original` that switches the check off while it runs.

    So `original` may call methods that a transform itself may not call.
    """

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        before, _inside.function = _inside.function, ""
        try:
            return original(*args, **kwargs)
        finally:
            _inside.function = before

    return method


def _require_pivot_values(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `pivot` that requires its values. Without them Spark runs a job."""

    @functools.wraps(original)
    def pivot(self: Any, pivot_col: str, values: Any = None) -> Any:
        if values is None:
            _refuse("GroupedData.pivot", _PIVOT)
        return original(self, pivot_col, values)

    return pivot
