"""Python jobs in a real session: refused before a request is sent to Kafka, and cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from support.errors import raises
from support.spark.spark_session import local_spark

import eos
from eos.errors import UsageError
from eos.run.batch_run import TaggedJobs

pytestmark = pytest.mark.spark

KAFKA = eos.Kafka("127.0.0.1:1")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("python jobs") as session:
        yield session


def test_a_dataframe_needs_a_cluster_to_write_to(spark: SparkSession) -> None:
    with raises("job_cluster_missing", UsageError):
        eos.exactly_once(spark.range(1), "copied")


def test_a_dataframe_is_started_only_if_it_is_streaming(
    spark: SparkSession, tmp_path: Path
) -> None:
    batch = eos.exactly_once(spark.range(1), "copied", kafka=KAFKA).to_topic("a")
    with raises("job_not_streaming", UsageError):
        batch.start(str(tmp_path), available_now=True)
    rates = spark.readStream.format("rate").load()
    stream = eos.exactly_once(rates, "copied", kafka=KAFKA).to_topic("a")
    with raises("job_streaming", UsageError):
        stream.run("2026-11-23", str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_dataframe_can_not_be_written_to_a_table(spark: SparkSession, tmp_path: Path) -> None:
    rates = spark.readStream.format("rate").load()
    table = str(tmp_path / "table")
    stream = eos.exactly_once(rates, "copied", kafka=KAFKA).to_topic("a").to_delta(table)
    with raises("job_table_unsupported", UsageError):
        stream.start(str(tmp_path), once=True)
    batch = eos.exactly_once(spark.range(1), "copied", kafka=KAFKA).to_topic("a").to_delta(table)
    with raises("job_table_unsupported", UsageError):
        batch.run("2026-11-23", str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_job_that_begins_after_the_request_to_stop_is_cancelled(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, was_cancelled = spark.sparkContext, threading.Event()
    cancel = context.cancelJobsWithTag

    def cancelled(tag: str) -> None:
        cancel(tag)
        was_cancelled.set()

    monkeypatch.setattr(context, "cancelJobsWithTag", cancelled)
    jobs = TaggedJobs(context, "late")
    stopping = threading.Thread(target=jobs.stop)
    stopping.start()
    assert was_cancelled.wait(60)
    context.addJobTag("late")
    try:
        with pytest.raises(Py4JJavaError, match="SPARK_JOB_CANCELLED"):
            spark.range(10**15).where("hash(id) = 1 AND hash(id) = 2").count()
    finally:
        jobs.have_ended.set()
        context.removeJobTag("late")
    stopping.join(60)
    assert not stopping.is_alive()
