"""A Spark session in the test's own process, without Kafka: for what a plan is and does.

PySpark keeps its JVM for the next session of the process. It has the class path of a run, so that
it finds Avro and can map the class-data archive that runs have left.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from eos.local.java import AVRO_LIMITS
from eos.spark.local_session import SHORT_LIFE
from support.archived import class_path, with_archive, words_of_a_run

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
def local_spark(name: str) -> Iterator[SparkSession]:
    words = words_of_a_run("local[1]")
    builder = SparkSession.builder.master("local[1]").appName(name)
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
