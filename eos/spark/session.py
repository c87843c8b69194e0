"""Spark settings that a pipeline needs, and those that would break exactly-once."""

from __future__ import annotations

import atexit
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.errors import UnavailableError, UsageError
from eos.local.java import AVRO_LIMITS, is_one_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The largest Arrow batch that a Python worker gets, whatever the size of its rows. A worker needs a
# few times as much memory. Twice the size takes 40 MB more and encodes no faster.
ARROW_BYTES_MAX = 4 * 1024 * 1024
_ROWS_MAX = 1 << 20  # of an Arrow batch, whatever the settings
_STREAMING = "org.apache.spark.sql.execution.streaming"
SESSION = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES_MAX),
    # RocksDB keeps state outside the JVM's heap, and transformWithState requires it. A checkpoint
    # keeps the provider that it was created with.
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
}
REQUIRED = {
    # Rule "one epoch, one attempt": a speculative copy of a writing task would send under the
    # identity of the first.
    "spark.speculation": "false",
    # Rule "one epoch, one attempt": a repeated stage counts its task attempts from 0 again. So its
    # writers could not detect by that number that an earlier task has sent records.
    "spark.stage.maxConsecutiveAttempts": "1",
    # A writer's second task attempt would refuse to send, and its error would hide why the first
    # one failed. The whole micro-batch is retried instead.
    "spark.task.maxFailures": "1",
    # True by default since Spark 4.2. Then spark.stage.maxConsecutiveAttempts does not count a
    # stage that failed because an executor was decommissioned. Spark would repeat a writing stage
    # within an attempt, against the rule "one epoch, one attempt".
    "spark.stage.ignoreDecommissionFetchFailure": "false",
    # After the loss of an executor, Spark recomputes a part of a stage, and may get other rows.
    # With these settings (its defaults) Spark detects that, and recomputes everything that depended
    # on the first rows. Spark 4.0 ignores them: `startup/spark_plan.py` refuses what needs them.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
    # A startup reads files in these formats (its defaults) only, and would reject the checkpoint.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
    "spark.sql.streaming.offsetLog.formatVersion": "1",
}

AUTHENTICATE = "spark.authenticate"
_OWN_SECRET = re.compile(r"yarn|local|local\[[^\]]*\]|k8s://.*")
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_MANAGER = "FileSystemBasedCheckpointFileManager"
# Classes and methods that PySpark looks up in the JVM for each plan, half a millisecond each time.
_LOOKED_UP = {
    "PythonUtils": ("toSeq", "getBroadcastThreshold"),
    "SimplePythonFunction": (),
    "org.apache.spark.sql.classic.SparkSession": ("getActiveSession",),
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction": (),
}


def look_up_once(spark: SparkSession) -> None:
    """Cache the Java classes and methods that PySpark looks up for each plan.

    Py4J asks the JVM for each name that is not yet an attribute of its Python object. This function
    sets the attributes.
    """
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
    for name, methods in _LOOKED_UP.items():
        found = getattr(jvm, name)
        setattr(jvm, name, found)
        for method in methods:
            setattr(found, method, getattr(found, method))


def _leave_no_socket(spark: SparkSession) -> None:
    """Delete the socket file of Spark's accumulators when this process ends.

    Spark deletes it when the context is stopped, but a driver ends without stopping the context.
    """
    context: Any = spark.sparkContext
    address = context._accumulatorServer.server_address  # noqa: SLF001 - PySpark has no public way
    if isinstance(address, str):
        atexit.register(Path(address).unlink, missing_ok=True)


def write_checkpoints(spark: SparkSession, *, is_local: bool) -> None:
    """Set the class with which Spark writes the next query's checkpoint, if the user has set none.

    Spark's default for local disks starts eight `readlink` processes for each file, which takes a
    hundred milliseconds in each micro-batch. So on local disks Spark's other class is used. Both
    write a temporary file, check that the name is free, and rename. On local disks these are two
    steps in both classes, so a lock keeps other writers out (`startup/ownership.py`). Elsewhere
    Spark's default stays. On HDFS it checks and renames in one step.
    """
    configured = spark.sparkContext.getConf().get(_MANAGER)
    if configured is not None:
        return
    if is_local:
        # The package has another name since Spark 4.1.
        package = _STREAMING if spark.version.startswith("4.0.") else f"{_STREAMING}.checkpointing"
        spark.conf.set(_MANAGER, f"{package}.{_LOCAL_MANAGER}")
    else:
        spark.conf.unset(_MANAGER)


def slots(spark: SparkSession) -> int:
    """Return how many tasks can run at the same time in the driver's JVM; 0 if tasks run elsewhere.

    `spark.default.parallelism` is not reliable, since a user may set it to any number.
    """
    context: Any = spark.sparkContext
    if not is_one_jvm(str(context.master)):
        return 0
    scala = context._jsc.sc()  # noqa: SLF001 - PySpark has no public way
    profile = scala.resourceProfileManager().defaultResourceProfile()
    return int(scala.maxNumConcurrentTasks(profile))


def without_traces() -> None:
    """Disable PySpark's loggers for query errors.

    PySpark raises each error in a query and also logs it to stderr, as pages of JSON with a Java
    stack trace. That would precede the pipeline's own message.
    """
    for name in _QUERY_LOGGERS:
        logging.getLogger(name).disabled = True


def unless_set(master: str) -> dict[str, str]:
    """Return default settings for a context on this master. The user may override them.

    Without authentication, a process that reaches a port of the driver or an executor can run code
    as the pipeline's user. On some masters Spark creates the secret and passes it to its executors,
    so authentication is on there. On others an operator must set it up: docs/security.md.
    """
    return {AUTHENTICATE: "true"} if _OWN_SECRET.fullmatch(master) else {}


def executor_options(master: str, configured: str) -> str:
    """Return the executors' Java options: Avro's size limits, then the user's options.

    The user's options override the limits. The result is empty if tasks run in the driver's JVM,
    since its command line has the limits already.
    """
    return "" if is_one_jvm(master) else " ".join([*AVRO_LIMITS, configured]).strip()


def require_once(configured: Callable[[str], str | None]) -> None:
    """Raise UsageError for a setting with which Spark may repeat a writing task in an attempt, or
    write a checkpoint that no startup can read."""
    for key, required in REQUIRED.items():
        value = configured(key) or required
        if value != required:
            raise UsageError(
                "spark_conf_unsafe",
                f"{key} is {value}; exactly-once needs {required}",
                hint=f"set spark.conf {key}: {required} in the profile, or remove the option",
            )


def another_session(spark: SparkSession, pool: str) -> SparkSession:
    """Return a copy of the session in the same application, with queries of its own.

    It has a copy of the settings, functions and temporary views. Jobs of this thread, and of
    queries that it starts, run in the scheduler's pool `pool`.
    """
    from pyspark.sql import SparkSession

    java: Any = spark._jsparkSession  # noqa: SLF001 - PySpark has no public way to copy a session
    found = SparkSession(spark.sparkContext, java.cloneSession())
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
    return found


def has_ended(spark: SparkSession) -> bool:
    """Return whether the Spark application has ended, for instance because its master is gone."""
    context: Any = spark.sparkContext
    try:
        return bool(context._jsc.sc().isStopped())  # noqa: SLF001 - PySpark has no public way
    except Exception:  # noqa: BLE001 - the JVM does not answer
        return True


def arrow_limits(spark: SparkSession) -> tuple[int, int]:
    """Return the most rows and bytes of an Arrow batch, from settings that the user may change.

    Spark reads sizes such as "8m", and takes 0 rows or less as "no limit". The reader has buffers
    for the rows of a batch, so it has a limit always."""
    # late: it imports Arrow, and `eos doctor` reads only this module's settings
    from eos.kafka.records.column_reader import BYTES_LIMIT

    rows = int(str(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")))
    size = str(spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch"))
    if not size.isdecimal():
        java: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
        size = java.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(size)
    return min(rows, _ROWS_MAX) if rows > 0 else _ROWS_MAX, min(int(size), BYTES_LIMIT)


def open_session(name: str) -> SparkSession:
    """Return a session with the settings that a pipeline needs.

    Raise UsageError if the user's settings break exactly-once.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    without_traces()
    # Only the JVM knows spark-submit's options. It can be asked before the context exists.
    SparkContext._ensure_initialized()  # noqa: SLF001 - PySpark has no public way
    configured = SparkConf()
    require_once(configured.get)
    builder = SparkSession.builder.appName(name).config(map=dict(REQUIRED))
    for key, value in unless_set(configured.get("spark.master") or "").items():
        builder = builder.config(key, configured.get(key) or value)
    options = executor_options(
        configured.get("spark.master") or "", configured.get(_EXECUTOR_JAVA) or ""
    )
    if options:
        builder = builder.config(_EXECUTOR_JAVA, options)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        # Py4J's first line only names the called method. If no master answers, the error here is
        # about a stopped context.
        lines = [line.strip(": ") for line in str(error).splitlines() if line.startswith(": ")]
        reason = (lines[0] if lines else str(error))[:500]
        master = configured.get("spark.master")
        raise UnavailableError(
            "spark_start_failed",
            f"Spark did not start on {master}: {reason}",
            hint="check that this is the master's address, that it is reachable, and that it runs "
            "the same version of Spark; Spark's log has more details",
        ) from error
    for key, value in SESSION.items():
        spark.conf.set(key, configured.get(key) or value)
    look_up_once(spark)
    _leave_no_socket(spark)
    return spark
