"""The Spark session that a pipeline needs, and the settings that would break the promise."""

from __future__ import annotations

import atexit
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.errors import UnavailableError, UsageError
from eos.local.java import AVRO_LIMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Bounds what one Arrow batch brings into a Python worker, whatever the size of its rows. A worker
# holds a few times as much. Twice this costs 40 MB more and encodes no faster.
ARROW_BYTES_MAX = 4 * 1024 * 1024
_SESSION = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES_MAX),
    # State outside of the JVM's heap, and what transformWithState asks for. A checkpoint keeps the
    # provider that it was begun with.
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming"
    ".state.RocksDBStateStoreProvider",
}
_REQUIRED = {
    # Rule R1: a second copy of a writing task would send under the identity of the first.
    "spark.speculation": "false",
    # A repeated stage starts its tasks at attempt 0 again, where a writer can't see it.
    "spark.stage.maxConsecutiveAttempts": "1",
    # A writer's second attempt refuses to send anyway, and its refusal would hide why the first
    # one failed. The whole micro-batch is redone instead.
    "spark.task.maxFailures": "1",
    # True by default since Spark 4.2: stages that an executor's decommissioning made fail are not
    # counted by spark.stage.maxConsecutiveAttempts, so Spark would repeat a writing stage within
    # an attempt (rule R1).
    "spark.stage.ignoreDecommissionFetchFailure": "false",
    # A part of a stage that is computed again, after an executor was lost, may give other rows. By
    # these (its defaults) Spark sees that, and computes again all that was made of the first ones.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}

AUTHENTICATE = "spark.authenticate"
_OWN_SECRET = re.compile(r"yarn|local|local\[[^\]]*\]|k8s://.*")
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# Classes that PySpark looks up in the JVM by these names for each plan that it makes, half a
# millisecond each time; and of some the methods, which it looks up, too.
_LOOKED_UP = {
    "PythonUtils": ("toSeq", "getBroadcastThreshold"),
    "SimplePythonFunction": (),
    "org.apache.spark.sql.classic.SparkSession": ("getActiveSession",),
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction": (),
}


def look_up_once(spark: SparkSession) -> None:
    """Py4J asks the JVM for what is no attribute of its objects. So these become some."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
    for name, methods in _LOOKED_UP.items():
        found = getattr(jvm, name)
        setattr(jvm, name, found)
        for method in methods:
            setattr(found, method, getattr(found, method))


def _leave_no_socket(spark: SparkSession) -> None:
    """The one by which Spark hears of its accumulators is a file, which goes with a context that is
    stopped: a driver just ends."""
    context: Any = spark.sparkContext
    address = context._accumulatorServer.server_address  # noqa: SLF001 - PySpark has no public way
    if isinstance(address, str):
        atexit.register(Path(address).unlink, missing_ok=True)


def write_checkpoints(spark: SparkSession, *, is_local: bool) -> None:
    """How Spark writes the checkpoints of the next query, where the user has not said it.

    Of the two ways that Spark has, the one that it chooses for local disks asks `readlink` eight
    times for each file, each time in a process of its own: a hundred milliseconds a micro-batch.
    Both write aside, look whether the name is taken, and rename: on local disks neither look and
    rename are one step, and who else may write there is kept out by a lock
    (`startup/ownership.py`).
    On HDFS, where Spark's choice makes them one step, and elsewhere it stays.
    """
    given = spark.sparkContext.getConf().get(_MANAGER)
    if given is not None:
        return
    if is_local:
        spark.conf.set(_MANAGER, _LOCAL_MANAGER)
    else:
        spark.conf.unset(_MANAGER)


def without_traces() -> None:
    """PySpark tells of each mistake in a query twice: to whoever asked, and to loggers that write
    pages of JSON with a Java stack trace to stderr, before we have said what is wrong."""
    for name in _QUERY_LOGGERS:
        logging.getLogger(name).disabled = True


def unless_set(master: str) -> dict[str, str]:
    """Return the settings of a context on this master that the user may choose otherwise.

    Without authentication a process that reaches a port of the driver or an executor can run code
    as the pipeline's user. On these masters Spark creates the secret itself, and passes it to its
    executors. On others a person has to: docs/security.md.
    """
    return {AUTHENTICATE: "true"} if _OWN_SECRET.fullmatch(master) else {}


def executor_options(master: str, given: str) -> str:
    """Return the executors' Java options, with Avro's limits before what is given: the last option
    of a name counts. Empty: tasks run in the driver's JVM, which has them by its command."""
    has_one_jvm = master == "local" or master.startswith("local[")
    return "" if has_one_jvm else " ".join([*AVRO_LIMITS, given]).strip()


def require_once(given: Callable[[str], str | None]) -> None:
    """Raise UsageError for a setting with which Spark may repeat a writing task in an attempt."""
    for key, wanted in _REQUIRED.items():
        value = given(key) or wanted
        if value != wanted:
            raise UsageError(
                f"{key} is {value}; exactly-once needs {wanted}",
                hint=f"set spark.conf {key}: {wanted} in the profile, or drop the option",
            )


def open_session(name: str) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    without_traces()
    # What spark-submit was told is known to the JVM only, and there before the context is.
    SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark has no public way
    given = SparkConf()
    require_once(given.get)
    builder = SparkSession.builder.appName(name).config(map=dict(_REQUIRED))
    for key, value in unless_set(given.get("spark.master") or "").items():
        builder = builder.config(key, given.get(key) or value)
    options = executor_options(given.get("spark.master") or "", given.get(_EXECUTOR_JAVA) or "")
    if options:
        builder = builder.config(_EXECUTOR_JAVA, options)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        # Py4J's first line only says what was called. And where no master answers, Spark has
        # stopped the context when it is first used.
        lines = [line.strip(": ") for line in str(error).splitlines() if line.startswith(": ")]
        words = lines[0] if lines else str(error)
        raise UnavailableError(
            f"Spark did not start on {given.get('spark.master')}: {words[:500]}",
            hint="is that its master, does it answer, and has it the same version? Spark's log "
            "says more",
        ) from error
    for key, value in _SESSION.items():
        spark.conf.set(key, given.get(key) or value)
    look_up_once(spark)
    _leave_no_socket(spark)
    return spark
