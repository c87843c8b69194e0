"""The replacements for what Spark 4.0 lacks give the same result on every version of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from support.errors import raises
from support.spark.spark_session import local_spark

from eos.errors import TransformError
from eos.spark import spark_4_0
from eos.startup import spark_plan

pytestmark = pytest.mark.spark
NUMBERS = 16


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("spark_4_0") as session:
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")  # several of them
        yield session


def test_each_row_gets_the_code_of_its_own_columns(spark: SparkSession) -> None:
    def doubles(batches: Iterator[Any]) -> Iterator[Any]:
        """Decide two batches at a time, as dedup holds rows back."""
        held: list[Any] = []
        for at, factor in batches:
            products = [a * b for a, b in zip(at.to_pylist(), factor.to_pylist(), strict=True)]
            held.append(pa.array(products, pa.int8()))
            if len(held) == 2:
                yield from held
                held = []
        yield from held

    frame = spark.range(0, 100, 1, 2).selectExpr("id", "CAST(id AS STRING) AS text")
    rows = spark_4_0.with_codes(frame, "code", ("id % 10", "CAST(2 AS BIGINT)"), doubles)
    assert rows.columns == ["id", "text", "code"]
    assert [tuple(row) for row in rows.orderBy("id").collect()] == [
        (number, str(number), number % 10 * 2) for number in range(100)
    ]


@pytest.mark.parametrize("has_arrow_functions", sorted({False, spark_4_0.has_arrow_functions()}))
def test_rows_are_in_the_partition_of_their_number(
    spark: SparkSession, has_arrow_functions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_4_0, "has_arrow_functions", lambda: has_arrow_functions)
    frame = spark.range(0, 100).selectExpr(f"CAST(id % {NUMBERS} AS INT) AS shard", "id")
    rows = spark_4_0.repartition_by_id(frame, NUMBERS, "shard")
    assert rows.columns == ["shard", "id"]
    found = rows.withColumn("partition", f.spark_partition_id()).collect()
    assert len(found) == 100
    assert all(row.partition == row.shard for row in found)


def test_functions_that_vary_are_refused_where_a_repeated_stage_is_not_compared(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    varying = spark.range(1).select(f.rand().alias("x"))
    spark_plan.require_repeatable(varying)  # all tasks run in this JVM
    monkeypatch.setattr(spark_plan, "slots", lambda _: 0)
    monkeypatch.setattr(spark_plan, "detects_changed_rows", lambda _: True)
    spark_plan.require_repeatable(varying)
    monkeypatch.setattr(spark_plan, "detects_changed_rows", lambda _: False)
    spark_plan.require_repeatable(spark.range(1).select(f.current_timestamp()))
    with raises("transform_not_repeatable", TransformError) as caught:
        spark_plan.require_repeatable(varying)
    assert "rand" in caught.value.message
