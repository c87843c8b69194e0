"""Which columns of the source does a query need? Never fewer than Spark reads of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.errors import in_turn
from support.spark.spark_session import local_spark

from eos.micro_batch.records_read import observed
from eos.micro_batch.source_reader import SourceReader
from eos.spark.columns_read import columns_read
from eos.testing import require_same_rows
from eos.transform.functions import Function

pytestmark = pytest.mark.spark

SCHEMA = "a INT, b INT, c INT, d INT"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("columns read") as session:
        session.sql("SELECT 1 AS a, 5 AS e").write.mode("overwrite").saveAsTable("looked_up")
        yield session
        session.sql("DROP TABLE looked_up")


def source(spark: SparkSession, *sent: str) -> DataFrame:
    """Rows of tasks, of which only some columns are sent, as `ArrowSource.frame` has them."""
    names = list(sent) or list("abcd")

    def rows(_):
        every = {name: pa.array([1, 2], pa.int32()) for name in names}
        yield pa.RecordBatch.from_arrays(list(every.values()), names=names)

    made = spark.range(0, 1, 1, 1).mapInArrow(rows, ", ".join(f"{name} INT" for name in names))
    nulls = [n if n in names else f"CAST(NULL AS INT) AS {n}" for n in "abcd"]
    return observed(made.selectExpr(*nulls) if sent else made)


def query(rows: DataFrame, text: str) -> DataFrame:
    rows.createOrReplaceTempView("input")
    return rows.sparkSession.sql(text)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "needed"),
    in_turn(
        [
            ("SELECT a FROM input", "a"),
            ("SELECT a + 1 AS x, d FROM input WHERE b > 0", "abd"),
            ("SELECT a FROM input WHERE c IS NULL OR true", "a"),
            ("SELECT x.a FROM input x JOIN input y ON x.b = y.c", "abc"),
            ("SELECT a FROM input UNION ALL SELECT b FROM input", "ab"),
            ("SELECT a FROM input WHERE b < (SELECT max(c) FROM input)", "abc"),
            ("SELECT a FROM input WHERE EXISTS (SELECT 1 FROM looked_up l WHERE l.e = d)", "ad"),
            ("SELECT i.a, l.e FROM input i LEFT JOIN looked_up l ON l.a = i.b", "ab"),
            ("WITH w AS (SELECT c, d FROM input) SELECT c FROM w WHERE d = 1", "cd"),
            ("SELECT sum(a) OVER (PARTITION BY b ORDER BY c) AS s FROM input", "abc"),
            ("SELECT 1 AS one FROM input", ""),
            ("SELECT * FROM input", None),
            ("SELECT a FROM input UNION ALL SELECT d FROM (SELECT DISTINCT * FROM input)", None),
        ],
        1,
        every=3,
    ),
)
def test_columns_that_are_not_needed_may_be_null(
    spark: SparkSession, text: str, needed: str | None
) -> None:
    whole = query(source(spark), text)
    found = columns_read(whole)
    if needed is None:
        assert found in (None, frozenset("abcd"))
        return
    assert found == frozenset(needed)
    less = query(source(spark, *(sorted(found) or ["d"])), text)
    require_same_rows(less, whole)


@pytest.mark.parametrize(
    ("text", "steps", "needed"),
    [
        ("SELECT a FROM input WHERE b = 1", (), frozenset("ab")),
        ("SELECT a FROM input WHERE current_date() > DATE'2000-01-01' OR b = 1", (), None),
        ("SELECT a FROM input WHERE rand() < 2 OR b = 1", (), None),
        ("SELECT a FROM input", (Function("m:f", {}, len, ()),), None),
    ],
    ids=["fixed", "the present date", "random", "a function that builds a DataFrame"],
)
def test_all_columns_are_read_if_the_next_plan_may_need_others(
    spark: SparkSession, text: str, steps: tuple[Function, ...], needed: frozenset[str] | None
) -> None:
    reader: Any = SimpleNamespace(_is_arrow=True, _plan=SimpleNamespace(transforms=steps))
    assert SourceReader.columns_needed(reader, query(source(spark), text)) == needed


@pytest.mark.long
def test_a_cached_result_may_hide_columns(spark: SparkSession) -> None:
    rows = source(spark)
    cached = rows.select("a", "b").cache()
    try:
        assert columns_read(cached.select("a").union(rows.select("c"))) is None
    finally:
        cached.unpersist()
