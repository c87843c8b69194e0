"""A Spark session in the test's own process, and the class-data archive for its JVM.

The archive makes a JVM's start a third shorter. It fits a JVM with the class path of a run, so all
JVMs of tests get that. As a program, this makes the archive if it is missing. Only a run that ends
well makes one, in the background and at the lowest priority: next to other tests it would take
minutes. Its folder is kept until then, since the JVM that makes the archive is in it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from eos.deadline import Deadline
from eos.launch import spark
from eos.launch.java_wheel import ensure_java
from eos.local.class_archive import Archive
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.java import AVRO_LIMITS
from eos.spark.local_session import SHORT_LIFE
from support.kafka import kafka_io

CLASS_PATH = "spark.driver.extraClassPath"


def words_of_a_run(master: str, conf: Mapping[str, str] | None = None) -> list[str]:
    """The command line of a run, but for its job."""
    words = spark.command(spark.find_spark(), [], master, conf or {}, [], Path(), Path())
    return words[:-1]


def class_path(words: Sequence[str]) -> dict[str, str]:
    """The setting of it, for a JVM that PySpark starts."""
    split = (word.partition("=") for word in words)
    return {key: value for key, _, value in split if key == CLASS_PATH}


def archive(master: str, words: Sequence[str]) -> Archive | None:
    """What lies beside the class path, as Delta may, the JVM loads as ever."""
    own = [word for word in words if word.startswith(f"{CLASS_PATH}=")]
    return spark.archive(spark.find_spark(), ensure_java(), master, own)


def with_archive(
    environment: Mapping[str, str], master: str, words: Sequence[str], *options: str
) -> dict[str, str]:
    """For the JVM of this command: these options, and the archive if there is one by now."""
    found = archive(master, words)
    mapped = found.options() if found else []
    return spark.with_java_options(environment, *options, *mapped)


CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}


def end_jvm() -> None:
    """PySpark keeps its JVM for the next session of the process, and only a JVM that starts takes
    jars: one that another file's tests have left would go on without."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    assert SparkContext._active_spark_context is None, "somebody's session was not stopped"
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with its standard input
    gateway.proc.wait(300)
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def local_spark(name: str, tasks: int = 1) -> Iterator[SparkSession]:
    """A session that runs so many tasks at a time."""
    words = words_of_a_run("local[1]")
    builder = SparkSession.builder.master(f"local[{tasks}]").appName(name)
    for key, value in {**CONF, **class_path(words)}.items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        with pytest.MonkeyPatch.context() as of_the_jvm:
            options = (*SHORT_LIFE, *AVRO_LIMITS)
            for key, value in with_archive(os.environ, "local[1]", words, *options).items():
                of_the_jvm.setenv(key, value)
            session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


RECORDS = 100
MAKE_MS_MAX = 120_000


def main() -> int:
    """Make the archive where there is none."""
    from support.spark.project import Project  # which starts its driver with this module's archive

    words = words_of_a_run("local[2]")
    wanted = archive("local[2]", words)
    if wanted is None or not wanted.options(Path("to be made")) or wanted.options():
        return 0  # no use, or in vain less than a day ago, or there
    with tempfile.TemporaryDirectory(prefix="eos-") as name:
        folder = Path(name) / "project"
        folder.mkdir()
        with EmbeddedKafka(Path(name) / "broker") as kafka:
            project = Project.made(folder, kafka)
            project.declare(RECORDS)
            kafka_io.create_topics(kafka.bootstrap, 2, project.source)
            kafka_io.fill(kafka.bootstrap, project.source, range(RECORDS))
            done = project.run()
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        enough = Deadline.after_ms(MAKE_MS_MAX)
        while not wanted.options() and not enough.has_passed:
            time.sleep(0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
