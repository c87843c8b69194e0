"""The sessions of several pipelines in one Spark application."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.spark.spark_session import local_spark

from eos.kafka.records.column_reader import BYTES_LIMIT
from eos.spark.session import another_session, arrow_limits, has_ended

pytestmark = pytest.mark.spark
POOL = "spark.scheduler.pool"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("several") as session:
        yield session


def test_each_has_settings_views_and_queries_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set(ROWS, "77")
    one, other = another_session(spark, "one"), another_session(spark, "other")
    assert [each.conf.get(ROWS) for each in (one, other)] == ["77", "77"]
    one.conf.set(ROWS, "78")
    one.range(1).createTempView("input")
    rate = one.readStream.format("rate").load().writeStream.queryName("p").foreachBatch(print)
    query = rate.option("checkpointLocation", str(tmp_path)).start()
    try:
        assert [each.name for each in one.streams.active] == ["p"]
        for each in (other, spark):
            assert each.conf.get(ROWS) == "77"
            assert not each.catalog.tableExists("input")
            assert each.streams.active == []
    finally:
        query.stop()


def test_a_querys_jobs_run_in_the_pool_of_the_thread_that_starts_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    context, pools = spark.sparkContext, queue.SimpleQueue[str | None]()

    def run(name: str) -> None:
        session = another_session(spark, name)

        def note(_frame: DataFrame, _batch_id: int) -> None:
            pools.put(context.getLocalProperty(POOL))

        writer = session.readStream.format("rate").load().writeStream.foreachBatch(note)
        place = str(tmp_path / name)
        writer.option("checkpointLocation", place).trigger(once=True).start().awaitTermination()

    here = context.getLocalProperty(POOL)
    for name in ("orders", "payments"):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(run, name).result()
        assert pools.get_nowait() == name
    assert context.getLocalProperty(POOL) == here


@pytest.mark.parametrize(
    ("rows", "size", "limits"),
    [
        ("2000000", "4194304", (1 << 20, 4 << 20)),
        ("0", "8m", (1 << 20, 8 << 20)),
        ("-1", "1g", (1 << 20, BYTES_LIMIT)),
    ],
)
def test_limits_of_an_arrow_batch_are_read_as_spark_reads_them(
    spark: SparkSession, rows: str, size: str, limits: tuple[int, int]
) -> None:
    session = another_session(spark, "limits")
    session.conf.set(ROWS, rows)
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", size)
    assert arrow_limits(session) == limits


def test_an_application_that_has_ended_is_seen(spark: SparkSession) -> None:
    """The last test: nothing runs in it afterwards."""
    assert not has_ended(spark)
    spark.sparkContext._jsc.sc().stop()
    assert has_ended(spark)
