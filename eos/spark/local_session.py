"""Open a local Spark session without Kafka, for tests in pipeline files and users' own tests."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from eos import private_files
from eos.errors import UnavailableError
from eos.launch import spark as launch
from eos.launch.java_wheel import ensure_java
from eos.launch.scratch import Scratch, scratch
from eos.local.jars import are_there, ensure_one, paths_of
from eos.spark.session import without_traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.config.model import ProfileFile

# JVM options for a short run, in which half of the time would be spent on optimising code.
SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_MASTER = "local[1]"
_LOCAL_DIR = "spark.local.dir"
_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def local_session(
    profile: ProfileFile,
    project: Path,
    name: str,
    *,
    has_avro: bool = False,
    has_delta: bool = False,
) -> Iterator[SparkSession]:
    """Open a Spark session with one local task slot, for the duration of the context.

    It has the profile's Spark settings, so that the time zone, for instance, is as in a run."""
    without_traces()
    logs = profile.local_root / "logs" / "test"
    private_files.prepare_root(profile.local_root, profile.state.group)
    private_files.own(logs)
    conf = {**profile.spark.conf, **_CONF}
    run = _scratch(conf.pop(_LOCAL_DIR, None))
    if has_delta:
        conf |= launch.delta_conf(conf)
    spark = _start_session(conf, run, project, name, logs / "jvm.log", has_avro, has_delta)
    try:
        yield spark
    finally:
        spark.stop()


@cache
def _scratch(local_dir: str | None) -> Scratch:
    """Return private temporary folders for the JVM, once for each value of `local_dir`.

    They are removed when this process ends, because the JVM uses them until then."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(scratch(local_dir))


def _start_session(
    conf: dict[str, str],
    run: Scratch,
    project: Path,
    name: str,
    log: Path,
    has_avro: bool,
    has_delta: bool,
) -> SparkSession:
    home, java = launch.find_spark(), ensure_java()
    environ = run.environment(launch.environment(home, java.home, _MASTER, log.parent, project))
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if not _use_class_path_of_run(home, conf, has_delta=has_delta):
        jars = [ensure_one(home.jar_sets()[-1], "spark-avro")] if has_avro else []
        jars += paths_of(*home.delta_jar_sets()) if has_delta else []
        if jars:
            named = [*filter(None, [conf.get("spark.jars")]), *map(str, jars)]
            conf["spark.jars"] = ",".join(named)
    archive = launch.archive(home, java, _MASTER, [f"{key}={conf[key]}" for key in conf])
    options = (*SHORT_LIFE, *(archive.options() if archive else ()))
    builder = SparkSession.builder.master(_MASTER).appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        with _environment(launch.with_java_options(environ, *options)), _apart(log):
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise UnavailableError(
            "spark_jvm_failed",
            f"Spark's JVM did not start: {error}",
            hint=f"see its output in {log}",
        ) from error


def _use_class_path_of_run(home: launch.Spark, conf: dict[str, str], *, has_delta: bool) -> bool:
    """Add the jars of a run to the JVM's class path. Return False if that was not possible.

    With the same class path the JVM can use the run's class-data archive, which saves a third of
    its startup time. If the jars are not in the cache, nothing is downloaded or changed.
    """
    sets = home.jar_sets(with_delta=has_delta)
    if not are_there(*sets):
        return False
    jars = [str(jar) for jar in paths_of(*sets)]
    return launch.put_on_class_path(home, _MASTER, jars, conf)


@contextmanager
def _apart(log: Path) -> Iterator[None]:
    """Redirect this process's stderr to the file `log` for the duration of the context.

    A JVM that is started meanwhile keeps the file as its stderr, so its messages don't mix with the
    command's output."""
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(log, "wb", opener=private_files.opener) as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a JVM that is started in this context, then restore the old.

    Otherwise a run that a test starts later would find a SPARK_HOME that the user has not set.
    """
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
