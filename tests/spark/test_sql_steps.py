"""SQL steps on a real Spark: what they read, what is refused, and that nothing of them stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.errors import raises
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline
from eos.config.model import ProfileFile
from eos.errors import TransformError
from eos.pipeline_tests.runner import check
from eos.plan.plan import plan
from eos.read.decode import Decode
from eos.transform.functions import Function, Transform, apply, load
from eos.transform.nondeterminism import unstable
from eos.transform.plan_check import check_stream
from eos.transform.row_order import first_shuffle
from eos.transform.sql import Query, read

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("sql") as session:
        yield session


@pytest.fixture
def stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


@pytest.fixture
def table(spark: SparkSession) -> DataFrame:
    return spark.range(4).select(f.col("id").alias("value"))


def query(text: str, name: str = "") -> Query:
    return Query(text, f"SQL step `{name}`", name)


def python(call: Any, name: str = "") -> Function:
    return Function("tests:call", {}, call, (), name)


def views(spark: SparkSession) -> list[str]:
    return [row.viewName for row in spark.sql("SHOW VIEWS").collect()]


def values(frame: DataFrame, *steps: Transform) -> list[Any]:
    return [row.value for row in apply(frame, steps).collect()]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM input WHERE value > 1",
        "select * from INPUT where input.value > 1;",
        "FROM `input` |> WHERE value > 1",
        "(SELECT * FROM input WHERE value > 1)",
        "WITH big AS (SELECT * FROM input WHERE value > 1) SELECT * FROM big -- ; {input} ${x}\n",
        "SELECT * FROM input WHERE value > length('{\"a\": [1]}') - 9 /* FROM nowhere */",
    ],
)
def test_a_query_reads_the_stage_before_and_leaves_nothing(spark, stream, table, text):
    assert sorted(values(table, query(text))) == [2, 3]
    check_stream(apply(stream, [query(text)]), "append")
    assert views(spark) == []


def test_later_queries_read_named_steps_of_either_kind(spark, table):
    steps = [
        query("SELECT value + 10 AS value FROM input", "tens"),
        python(lambda frame: frame.where("value > 11"), "Big"),
        query("SELECT value * 100 AS value FROM input WHERE value < 13"),
        query("SELECT * FROM input UNION ALL SELECT * FROM big UNION ALL SELECT * FROM tens"),
    ]
    assert sorted(values(table, *steps)) == [10, 11, 12, 12, 13, 13, 1200]
    assert views(spark) == []


def test_a_second_micro_batch_reads_its_own_rows_also_after_one_that_failed(spark, table):
    steps = [query("SELECT value FROM input", "a"), query("SELECT value + 1 AS value FROM a")]
    assert sorted(values(table, *steps)) == [1, 2, 3, 4]
    with pytest.raises(TransformError, match="UNRESOLVED_COLUMN"):
        apply(table, [steps[0], query("SELECT nothing FROM a JOIN input")])
    assert views(spark) == []
    assert values(table.where("value = 3"), *steps) == [4]


def test_a_view_that_was_there_is_neither_replaced_nor_dropped(spark, table):
    spark.range(1).createTempView("input")
    try:
        with raises("sql_view_name_taken", TransformError):
            apply(table, [query("SELECT * FROM input")])
        assert views(spark) == ["input"]
    finally:
        spark.catalog.dropTempView("input")


def test_what_a_query_may_read_is_told_where_it_reads_something_else(table):
    steps = [query("SELECT * FROM input", "orders"), query("SELECT * FROM order")]
    with raises("sql_table_missing", TransformError) as caught:
        apply(table, steps)
    assert "the query can read `input`, `orders`" in caught.value.hint
    assert "JVM" not in caught.value.message
    assert "`order`" in caught.value.message
    assert "DROP VIEW" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("SELECT value, count(*) FROM input GROUP BY value", "Aggregate"),
        ("SELECT DISTINCT value FROM input", "Distinct"),
        ("SELECT * FROM input ORDER BY value", "Sort"),
        ("SELECT * FROM input LIMIT 3", "GlobalLimit"),
        ("WITH x AS (SELECT max(value) AS m FROM input) SELECT * FROM x", "Aggregate"),
        ("SELECT row_number() OVER (ORDER BY value) FROM input", "Window"),
    ],
)
def test_what_keeps_state_is_refused_with_the_reason(stream, text, operator):
    with pytest.raises(TransformError) as caught:
        check_stream(apply(stream, [query(text)]), "append")
    assert caught.value.fields["operator"] == operator
    assert f"(Spark's operator {operator})" in str(caught.value)
    way_out = {"Sort": "remove ORDER BY", "GlobalLimit": "remove LIMIT"}.get(operator, "")
    assert way_out in caught.value.hint


def test_a_query_may_join_the_rows_with_themselves(stream):
    joined = [query("SELECT a.value FROM input a JOIN input b ON a.value = b.value")]
    state = check_stream(apply(Decode().apply(stream), joined), "append")
    assert (state.operators, state.branches) == (("Join",), 2)


def test_what_a_redone_micro_batch_would_not_repeat_is_found_in_the_plan(stream):
    dice = f.udf(lambda _: 4, "int").asNondeterministic()
    steps = [
        query("SELECT *, upper(uuid()) AS u, now() AS n FROM input WHERE rand() < 2"),
        python(lambda s: s.withColumn("d", dice("value")).withColumn("t", f.current_date())),
        query("WITH x AS (SELECT *, monotonically_increasing_id() AS i FROM input) FROM x"),
    ]
    found = unstable(apply(stream, steps))
    assert {"rand", "uuid", "now", "current_date", "monotonically_increasing_id"} <= set(found)
    assert len(found) == 6  # and the function
    stable = query("SELECT *, 'rand()' AS r, upper('now') AS n FROM input WHERE value > 1")
    assert unstable(apply(stream, [stable])) == ()


def test_many_stable_expressions_hide_no_other(
    stream: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = ", ".join(f"value + {number} AS c{number}" for number in range(9))
    steps = [query(f"SELECT rand() AS r, {columns} FROM input"), query("SELECT * FROM input")]
    monkeypatch.setattr("eos.transform.nondeterminism._EXPRESSIONS_MAX", 5)
    assert unstable(apply(stream, steps)) == ("rand",)


def test_a_query_in_a_file_is_read_as_it_is(tmp_path: Path, table):
    (tmp_path / "big.sql").write_text("-- what is large\nSELECT * FROM input\nWHERE value > 2;\n")
    assert values(table, query(read("big.sql", tmp_path))) == [3]


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("SELECT value + 1 AS value FROM input WHERE value > 1", ""),
        ("SELECT i.value FROM input i JOIN (SELECT 1L AS value) t ON i.value = t.value", ""),
        ("SELECT * FROM input DISTRIBUTE BY value", "SinglePartition, REPARTITION_BY_COL"),
        (
            "SELECT value, count(*) AS n FROM input GROUP BY value",
            "hashpartitioning(value, 1), ENSURE_REQUIREMENTS",
        ),
        (
            "SELECT /*+ REPARTITION(3) */ * FROM input",
            "RoundRobinPartitioning(3), REPARTITION_BY_NUM",
        ),
        (
            "SELECT /*+ REPARTITION(3) */ * FROM (SELECT * FROM input DISTRIBUTE BY value)",
            "RoundRobinPartitioning(3), REPARTITION_BY_NUM",  # Spark leaves the other one out
        ),
    ],
)
def test_the_shuffle_up_to_which_the_sources_order_is_kept(spark, text: str, how: str) -> None:
    several = spark.range(0, 4, 1, 2).selectExpr("id % 3 AS value")
    assert first_shuffle(apply(several, [query(text)])) == how


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("on_error: drop", "sets `on_error: drop`, but the transforms keep state"),
        ("on_error: fail", ""),
    ],
)
def test_a_files_tests_refuse_what_a_start_would_beside_a_state(
    spark: SparkSession, tmp_path: Path, more: str, told: str
) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        "version: 1\nname: counted\nsource: {kafka: {topic: a}, value: string, " + more + "}\n"
        "transform: [{sql: 'SELECT value, count(1) AS n FROM input GROUP BY value'}]\n"
        "sink: {kafka: {topic: b}}\noutput_mode: update\n"
    )
    pipeline = load_pipeline(path, {})
    made = plan(pipeline, ProfileFile(), (), load(pipeline.transform, tmp_path, tmp_path))
    if not told:
        check(spark, made)
        return
    with pytest.raises(TransformError, match=told):
        check(spark, made)
