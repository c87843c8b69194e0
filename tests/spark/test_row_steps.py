"""Steps that are functions of some rows at a time, on a real Spark: pandas and Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from support.spark.spark_session import local_spark

from eos.errors import TransformError
from eos.seal import crossed
from eos.testing import require_same_rows
from eos.transform.functions import Function, apply
from eos.transform.plan_check import check_stream
from eos.transform.sql import Query

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("rows") as session:
        yield session


HEADERS = "array(named_struct('key', 'a', 'value', X'FF'))"


def of_rows(kind: str, call: Any, returns: str, **arguments: Any) -> Function:
    modules = (call.__module__,)  # which executors can not import
    return Function(f"mine:{kind}", arguments, call, modules, "scored", kind, returns)


def scored_pandas(rows: Any, factor: int) -> Any:
    return rows.assign(score=rows["value"] * factor).query("value != 2")


def scored_arrow(rows: Any, factor: int) -> Any:
    kept = rows.filter(pc.not_equal(rows["value"], 2))
    return kept.append_column("score", pc.multiply(kept["value"], factor).cast("double"))


@pytest.mark.parametrize(("kind", "call"), [("pandas", scored_pandas), ("arrow", scored_arrow)])
def test_a_function_of_some_rows_adds_columns_and_keeps_the_others(spark, kind, call):
    table = spark.range(4).selectExpr("id AS value", "X'00FF' AS key", f"{HEADERS} AS headers")
    step = of_rows(kind, call, "*, score DOUBLE", factor=3)
    last = Query("SELECT *, score + 1 AS more FROM scored", "more")
    out = apply(table, [step, last])
    assert out.columns == ["value", "key", "headers", "score", "more"]
    rows = out.collect()
    assert [(row.value, row.score, row.more) for row in rows] == [(0, 0, 1), (1, 3, 4), (3, 9, 10)]
    assert bytes(rows[0].key) == b"\x00\xff"
    assert [(each.key, bytes(each.value)) for each in rows[0].headers] == [("a", b"\xff")]
    stream = spark.readStream.format("rate").load().selectExpr("value", "timestamp")
    check_stream(apply(stream, [step]), "append")
    chosen = apply(table, [of_rows(kind, call, "score DOUBLE, value LONG", factor=1)])
    expected = spark.createDataFrame([(0.0, 0), (1.0, 1), (3.0, 3)], "score DOUBLE, value LONG")
    # Which columns, of which types, in which order.
    require_same_rows(chosen, expected, in_order=True)
    assert apply(table, [of_rows(kind, call, "*", factor=1)]).columns == table.columns


@pytest.mark.parametrize(
    ("kind", "call", "words"),
    [
        ("pandas", lambda _rows: None, "returned nothing; expected a pandas.DataFrame"),
        ("arrow", lambda rows: rows.to_batches(), "a list; expected a pyarrow.Table"),
        ("pandas", lambda rows: rows, "returned no column `score`"),
        ("arrow", lambda rows: rows, "returned no column `score`"),
    ],
)
def test_what_a_function_of_rows_returns_is_told(spark, kind, call, words):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's, around ours
        apply(spark.range(2), [of_rows(kind, call, "*, score DOUBLE")]).collect()
    told = crossed(str(caught.value))
    assert isinstance(told, TransformError)
    assert words in told.message


def nulls_arrow(rows: Any) -> Any:
    return rows.append_column("nulls", pa.repeat(rows["headers"].null_count, rows.num_rows))


@pytest.mark.parametrize(
    "other", ["id AS n", "CAST(id AS INT) AS id", "id + 1 AS id", "2 - id AS id"]
)
def test_frames_that_differ_by_name_type_row_or_order_are_not_the_same(spark, other):
    table, changed = spark.range(3), spark.range(3).selectExpr(other)
    if other == "2 - id AS id":
        require_same_rows(changed, table)
    with pytest.raises(Exception, match=r"(?i)id"):
        require_same_rows(changed, table, in_order=True)


def nulls_pandas(rows: Any) -> Any:
    return rows.assign(nulls=rows["headers"].isnull().sum())


@pytest.mark.parametrize(("kind", "call"), [("pandas", nulls_pandas), ("arrow", nulls_arrow)])
def test_no_headers_are_an_empty_list(spark, kind, call):
    """A null one makes each row cost as much as there are rows before it."""
    table = spark.range(9).selectExpr("id", f"IF(id = 4, {HEADERS}, NULL) AS headers")
    rows = apply(table, [of_rows(kind, call, "*, nulls LONG")]).collect()
    assert [row.nulls for row in rows] == [0] * 9
    assert [len(row.headers) for row in rows] == [0, 0, 0, 0, 1, 0, 0, 0, 0]
    other = spark.range(2).selectExpr("CAST(NULL AS ARRAY<INT>) AS headers")
    assert apply(other, [of_rows(kind, call, "*, nulls LONG")]).first().headers is None
