"""A Spark session in the test's own process, without Kafka: for what a plan is and does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from eos.launch.jars import SPARK, ensure_one

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
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
def local_spark(name: str, *, avro: bool = False) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[1]").appName(name)
        for key, value in CONF.items():
            builder = builder.config(key, value)
        if avro:
            end_jvm()
            builder = builder.config("spark.jars", str(ensure_one(SPARK, "spark-avro")))
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
