"""Use a Spark session that the user has opened, if exactly-once is possible in it.

A session that the launcher opens has the right settings. In a user's session they may be missing,
and most of them can't be changed once the context runs: Spark would accept the change, and ignore
it. So the effective value of each is read back, and one that is wrong stops the startup.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from eos.errors import UsageError
from eos.local.java import is_one_jvm
from eos.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KAFKA = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_DELTA = "io.delta.sql.DeltaSparkSessionExtension"
_AVRO = "org.apache.spark.sql.avro.SchemaConverters"
_FAILURES = re.compile(r"local\[[^,\]]*,\s*(\d+)\s*\]")  # of a task, in a local master
# Spark's defaults, or those of its newest version where they differ: Spark has `true` for the last
# one since 4.2 only.
_SPARKS = {
    "spark.speculation": "false",
    "spark.stage.maxConsecutiveAttempts": "4",
    "spark.task.maxFailures": "4",
    "spark.stage.ignoreDecommissionFetchFailure": "true",
}
_HINT = (
    "open the session with these settings: `SparkSession.builder.config(map=eos.spark_conf())`. "
    "They can't be changed in a session that is open"
)


def adopted(spark: SparkSession, pool: str, *, delta: bool, avro: bool) -> SparkSession:
    """Return a session for one job, in the application of the user's session.

    It has a copy of the user's settings, functions and temporary views, and the settings that a
    job needs. Raise UsageError if exactly-once is not possible in this application.
    """
    configured = spark.sparkContext.getConf()
    master = str(spark.sparkContext.master)
    for key, required in session.REQUIRED.items():
        if not key.startswith("spark.sql."):
            _require(key, _effective(key, configured.get(key), master), required)
    missing = list(_missing(spark, delta=delta, avro=avro))
    if missing:
        subjects = " and ".join(missing)
        raise UsageError(
            "spark_session_without_jars",
            f"the Spark session has no classes of {subjects}",
            hint=f"{_HINT}: `eos.spark_conf(delta=True)` has Delta's jars, too",
        )
    return _copy(spark, pool)


def require_classic(spark: SparkSession) -> None:
    """Raise UsageError for a session of Spark Connect, one that was stopped, or something else."""
    kind = type(spark)
    if kind.__module__.startswith("pyspark.sql.connect"):
        raise UsageError(
            "spark_connect_unsupported",
            "the session is of Spark Connect, where a job can't run: `foreachBatch` would call "
            "its function in another process, which reaches neither the driver's JVM nor the "
            "checkpoint",
            hint="run the job where the driver runs, with a classic session: remove "
            "SPARK_REMOTE and `.remote(...)`, and set `spark.api.mode` to `classic`",
        )
    if kind.__name__ != "SparkSession":
        raise UsageError(
            "spark_session_expected",
            f"expected a SparkSession, got {kind.__module__}.{kind.__name__}",
            hint="pass the session, such as `spark` in a notebook",
        )
    if session.has_ended(spark):
        raise UsageError(
            "spark_session_stopped",
            "the Spark session was stopped, so no job can start in it",
            hint="open a new one with SparkSession.builder.getOrCreate()",
        )


def in_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the same DataFrame in another session of the same application.

    Spark runs a query with the settings of the session that its DataFrame belongs to."""
    from pyspark.sql import DataFrame

    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way to a plan
    plan = frame._jdf.queryExecution().logical()  # noqa: SLF001
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)  # noqa: SLF001


def jvm_process(spark: SparkSession) -> int:
    """Return the process id of the session's JVM."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _effective(key: str, configured: str | None, master: str) -> str:
    if key == "spark.task.maxFailures" and is_one_jvm(master):
        failures = _FAILURES.fullmatch(master)  # the setting has no effect there
        return failures[1] if failures else "1"
    return configured or _SPARKS.get(key, "")


def _require(key: str, value: str, required: str) -> None:
    if value != required:
        raise UsageError(
            "spark_session_unsafe",
            f"the Spark session has {key}={value}; exactly-once needs {required}",
            hint=_HINT,
            setting=key,
            value=value,
        )


def _missing(spark: SparkSession, *, delta: bool, avro: bool) -> Iterator[str]:
    wanted = {"Kafka's connector (spark-sql-kafka-0-10)": _KAFKA}
    wanted |= {"Delta (delta-spark)": _DELTA} if delta else {}
    wanted |= {"Avro (spark-avro)": _AVRO} if avro else {}
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no public way
    for subject, name in wanted.items():
        try:
            loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
            jvm.java.lang.Class.forName(name, False, loader)
        except Exception:  # noqa: BLE001 - Py4J's error of any class loader
            yield subject


def _copy(spark: SparkSession, pool: str) -> SparkSession:
    if is_one_jvm(str(spark.sparkContext.master)) and "PYSPARK_PYTHON" not in os.environ:
        # Workers of the job's own tasks run this process's Python, with its packages. The functions
        # of the user's DataFrames keep the one with which they were made.
        spark.sparkContext.pythonExec = sys.executable
    found = session.another_session(spark, pool)
    configured = spark.sparkContext.getConf()
    for key, value in session.SESSION.items():
        found.conf.set(key, configured.get(key) or value)
    for key, value in session.REQUIRED.items():
        if key.startswith("spark.sql."):
            found.conf.set(key, value)
    session.look_up_once(found)
    return found
