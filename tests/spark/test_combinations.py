"""What docs/combinations.md and docs/stateful.md say of state and watermarks, asked of Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.docs import OPERATORS, matrix, refusal, refusals
from support.spark.spark_session import local_spark

from eos.plan.plan import Plan
from eos.read.dedup_by import Distinct
from eos.spark.steps import transformed
from eos.transform.plan_check import PlanState, check_stream
from eos.transform.sql import Query, run_query

pytestmark = pytest.mark.spark
RECORD = (
    "CAST('' AS BINARY) AS key",
    "CAST('' AS BINARY) AS value",
    "CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    "'a' AS topic",
    "0 AS partition",
    "value AS offset",
    "timestamp",
    "0 AS timestampType",
)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("combinations") as session:
        yield session


@pytest.mark.long
def test_spark_and_the_page_agree_on_what_goes_with_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr(*RECORD)
    seen = dict[str, PlanState]()

    def look(planned: Plan) -> PlanState:
        seen[pair] = check_stream(transformed(planned, rows), planned.output_mode)
        return seen[pair]

    page, reasons = matrix(), refusals()
    # The other features change no operator: tests/pure/test_docs_combinations.py tries them.
    for one, other in combinations_with_replacement(OPERATORS, 2):
        pair = one + other
        said = refusal(pair if one != other else one, tmp_path, look)
        cell = page[one, other]
        assert (said == "") == (cell == "+"), f"{pair}: {said}"
        assert cell == "+" or reasons[cell] in said, f"{pair}: {said}"
    for letter, operators in OPERATORS.items():
        assert seen[letter * 2].operators == operators


# What four micro-batches read. The third begins with the watermark at 11:00, and the fourth drops
# what is older: a row is late by the watermark of the micro-batch before.
MICRO_BATCHES = (
    [(1, "10:00")],
    [(2, "13:00")],
    [(3, "13:10"), (4, "10:20")],
    [(5, "10:30"), (6, "11:30"), (7, "10:31")],
)
SQL = """
SELECT window.start AS hour, count(*) AS n
FROM input WATERMARK ts DELAY OF INTERVAL 2 HOURS GROUP BY window(ts, '1 hour')
"""


def in_sql(rows: DataFrame) -> DataFrame:
    return run_query(Query(SQL, "SQL step"), rows, {})


def in_python(rows: DataFrame) -> DataFrame:
    hours = rows.withWatermark("ts", "2 hours").groupBy(f.window("ts", "1 hour"))
    return hours.agg(f.count("*").alias("n")).select(f.col("window.start").alias("hour"), "n")


def by_id(rows: DataFrame) -> DataFrame:
    return Distinct(("id",), 2 * 3_600_000, "ts").apply(rows)


@pytest.mark.long
@pytest.mark.parametrize("step", [in_sql, pytest.param(in_python, marks=pytest.mark.nightly)])
def test_a_watermark_follows_the_newest_time_and_drops_late_rows(
    spark: SparkSession, tmp_path: Path, step: Any
) -> None:
    came, progress = run(spark, tmp_path, step)
    # 11:30 is not late. Nothing closes its hour and the one of 13:00: they stay open.
    assert hours(came) == [("10:00", 2)]
    assert progress[-1]["eventTime"]["watermark"] == "2026-11-21T11:10:00.000Z"
    # Two late rows of one hour and task are one row where Spark counts them.
    assert sum(each["numRowsDroppedByWatermark"] for each in operators(progress)) == 1
    # A run without new records moves nothing; the next record does.
    assert run(spark, tmp_path, step, more=[])[0] == []
    came, _ = run(spark, tmp_path, step, more=[(8, "14:00")])
    assert hours(came) == [("11:00", 1)]


def test_dedup_by_columns_drops_late_rows_and_each_is_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    came, progress = run(spark, tmp_path, by_id)
    assert sorted(row["id"] for row in came) == [1, 2, 3, 4, 6]
    assert sum(each["numRowsDroppedByWatermark"] for each in operators(progress)) == 2


@pytest.mark.nightly
def test_a_watermark_of_its_own_for_each_side_of_a_join_waits_for_the_slower_topic(
    spark: SparkSession, tmp_path: Path
) -> None:
    within = "date(l.ts) = date(r.ts) AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 1 HOUR"

    def joined(rows: DataFrame) -> DataFrame:
        slow, fast = rows.where("id IN (1, 4, 6)"), rows.where("id NOT IN (1, 4, 6)")
        left = slow.withWatermark("ts", "2 hours").alias("l")
        right = fast.withWatermark("ts", "2 hours").alias("r")
        return left.join(right, f.expr(within)).select("l.id")

    _, progress = run(spark, tmp_path, joined)
    assert progress[-1]["eventTime"]["watermark"] == "2026-11-21T09:30:00.000Z"


def hours(came: list[Any]) -> list[tuple[str, int]]:
    return sorted((row["hour"].strftime("%H:%M"), row["n"]) for row in came)


def run(
    spark: SparkSession, folder: Path, step: Any, more: list[tuple[int, str]] | None = None
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Run until the source is drained; a file is a micro-batch, and a partition of it."""
    source = folder / "source"
    source.mkdir(exist_ok=True)
    for rows in MICRO_BATCHES if more is None else filter(None, [more]):
        number = len(list(source.iterdir()))
        lines = [json.dumps({"id": i, "ts": f"2026-11-21T{at}:00Z"}) for i, at in rows]
        file = source / f"{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (number, number))  # Spark reads the oldest file first
    reader = spark.readStream.option("maxFilesPerTrigger", 1).schema("id INT, ts TIMESTAMP")
    came: list[Any] = []
    made = step(reader.json(str(source)))
    writer = made.writeStream.foreachBatch(lambda frame, _: came.extend(frame.collect()))
    checkpoint = str(folder / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert not query.isActive
    return came, [json.loads(each.json) for each in query.recentProgress]


def operators(progress: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (each for one in progress for each in one["stateOperators"])
