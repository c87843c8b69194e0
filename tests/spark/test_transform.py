"""Transforms on a real Spark: what is applied, what is refused, and in which words."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.errors import raises
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline
from eos.errors import TransformError
from eos.read.decode import Decode
from eos.testing import require_same_rows
from eos.transform.functions import Function, apply, load
from eos.transform.plan_check import check_stream

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("transforms") as session:
        yield session


@pytest.fixture
def stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


@pytest.fixture
def table(spark: SparkSession) -> DataFrame:
    return spark.range(3).select(f.col("id").alias("value"))


def function(call: Callable[..., Any], **arguments: Any) -> Function:
    return Function(f"tests:{call.__name__}", arguments, call, ())


def refused(frame: DataFrame, call: Callable[..., Any]) -> TransformError:
    with pytest.raises(TransformError) as caught:
        apply(frame, [function(call)])
    return caught.value


STATELESS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "select": lambda s: s.select("value", (f.col("value") * 2).alias("twice")),
    "where": lambda s: s.where("value % 2 = 0").filter(f.col("value") > 5),
    "withColumn": lambda s: s.withColumn("a", f.lit(1)).drop("timestamp"),
    "explode": lambda s: s.select(f.explode(f.array("value", "value"))),
    "union": lambda s: s.where("value > 1").union(s.where("value < 1")),
    "repartition": lambda s: s.repartition(4, "value").coalesce(2),
    "watermark": lambda s: s.withWatermark("timestamp", "1 minute"),
    "python udf": lambda s: s.select(f.udf(lambda x: x + 1, "long")("value")),
    "pandas udf": lambda s: s.select(f.pandas_udf(add_one, "long")("value")),
    "mapInArrow": lambda s: s.mapInArrow(lambda batches: batches, s.schema),
    "mapInPandas": lambda s: s.mapInPandas(lambda frames: frames, s.schema),
    "hint": lambda s: s.hint("rebalance"),
    "alias": lambda s: s.alias("x").select("x.value"),
    "observe": lambda s: s.observe("seen", f.count(f.lit(1))),
    "sql": lambda s: s.sparkSession.sql("SELECT value FROM {rows} WHERE value > 1", rows=s),
    "sql with": lambda s: s.sparkSession.sql(
        "-- first\n(WITH x AS (SELECT * FROM {rows}) SELECT value FROM x)", rows=s
    ),
}


def add_one(values: pd.Series) -> pd.Series:
    return values + 1


@pytest.mark.parametrize("name", STATELESS)
def test_what_treats_each_row_by_itself_may_run(stream, name):
    check_stream(apply(stream, [function(STATELESS[name])]), "append")


def test_a_join_with_a_table_may_run_even_if_the_table_is_grouped(stream, table):
    grouped = table.groupBy("value").count().orderBy("count").limit(2)
    check_stream(stream.join(f.broadcast(grouped), "value"), "append")
    check_stream(stream.join(table, "value", "left"), "append")


STATEFUL: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "groupBy with a watermark": (
        lambda s: (
            s.withWatermark("timestamp", "1 minute")
            .groupBy(f.window("timestamp", "1 minute"))
            .count()
        ),
        "Aggregate",
    ),
    "dropDuplicates": (lambda s: s.dropDuplicates(["value"]), "Deduplicate"),
    "dropDuplicatesWithinWatermark": (
        lambda s: s.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["value"]),
        "DeduplicateWithinWatermark",
    ),
    "applyInPandasWithState": (
        lambda s: s.groupBy("value").applyInPandasWithState(
            lambda _key, frames, _state: frames, s.schema, "n int", "append", "NoTimeout"
        ),
        "FlatMapGroupsInPandasWithState",
    ),
    "in a union": (
        lambda s: s.select("value").union(s.select("value").dropDuplicates()),
        "Deduplicate",
    ),
}


NOT_RUN: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "limit": (lambda s: s.limit(3), "GlobalLimit"),
    "applyInPandas": (
        lambda s: s.groupBy("value").applyInPandas(lambda frame: frame, s.schema),
        "FlatMapGroupsInPandas",
    ),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_what_keeps_state_is_told_by_its_operators_name(stream, name):
    build, operator = STATEFUL[name]
    state = check_stream(build(stream), "append")
    assert state.operators == (operator,)
    assert str(state)
    assert state.is_bounded == (operator != "Deduplicate")


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_keeps_state_and_does_not_run_is_refused_by_its_operators_name(stream, name):
    build, operator = NOT_RUN[name]
    with raises("stateful_operator_unsupported", TransformError) as caught:
        check_stream(build(stream), "append")
    assert f"Spark's operator {operator})" in caught.value.message
    assert caught.value.fields["operator"] == operator


JOINED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "by a column": lambda s: s.alias("a").join(s.alias("b"), "value"),
    "of two parts": lambda s: s.where("value > 1").join(
        s.where("value < 2").withColumnRenamed("timestamp", "other"), "value"
    ),
    "three of them": lambda s: s.join(s.select("value"), "value").join(s.select("value"), "value"),
}


@pytest.mark.parametrize("name", JOINED)
def test_a_join_of_the_rows_with_themselves_is_of_one_source(stream, name):
    state = check_stream(JOINED[name](Decode().apply(stream)), "append")
    assert set(state.operators) == {"Join"}
    assert state.branches == 1 + len(state.operators)
    assert not state.is_bounded


def test_a_join_of_two_sources_is_refused(stream):
    """As Spark makes them of one without names of its own for each column."""
    other = stream.sparkSession.readStream.format("rate").load()
    for left, right in ((stream, stream), (Decode().apply(stream), Decode().apply(other))):
        with raises("stream_sources_multiple", TransformError):
            check_stream(left.join(right, "value"), "append")
    # A table is none.
    table = stream.sparkSession.range(3).select(f.col("id").alias("value"))
    assert check_stream(stream.join(table, "value"), "append").operators == ()


def test_a_stateless_plan_has_no_state(stream):
    assert check_stream(stream.where("value > 1"), "append").operators == ()


def test_groups_without_a_watermark_grow_and_can_be_updated_only(stream):
    grouped = stream.groupBy("value").count()
    assert not check_stream(grouped, "update").is_bounded
    with raises("stream_unsupported", TransformError) as caught:
        check_stream(grouped, "append")
    assert "withWatermark()" in caught.value.hint


REFUSED_BY_SPARK: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "groupBy": (lambda s: s.groupBy("value").count(), "append"),
    "sort": (lambda s: s.orderBy("value"), "Sorting is not supported"),
    "window function": (
        lambda s: s.selectExpr("row_number() OVER (PARTITION BY value ORDER BY timestamp)"),
        "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING",
    ),
    "offset": (lambda s: s.offset(3), "Offset is not supported"),
    "sample": (lambda s: s.sample(0.5, 1), "Sampling is not supported"),
}


@pytest.mark.parametrize("name", REFUSED_BY_SPARK)
def test_what_spark_refuses_as_a_stream_is_refused_in_its_words(stream, name):
    build, words = REFUSED_BY_SPARK[name]
    with raises("stream_unsupported", TransformError) as caught:
        check_stream(build(stream), "append")
    assert words.lower() in caught.value.message.lower()
    assert "JVM" not in caught.value.message
    assert ("(Spark's operator " in caught.value.hint) == (name != "sample")


def test_a_streams_operator_that_nobody_knows_is_refused(stream, monkeypatch):
    known = frozenset({"StreamingRelationV2", "StreamingRelation"})
    monkeypatch.setattr("eos.transform.plan_check._STATELESS", known)
    with raises("operator_unknown", TransformError) as caught:
        check_stream(stream.where("value > 1"), "append")
    assert caught.value.fields["operator"] == "Filter"


def test_rows_from_elsewhere_are_refused(table):
    with raises("transform_not_from_source", TransformError):
        check_stream(table, "append")


ACTIONS: dict[str, Callable[[DataFrame], Any]] = {
    "DataFrame.count": lambda s: s.count(),
    "DataFrame.collect": lambda s: s.collect(),
    "DataFrame.toPandas": lambda s: s.toPandas(),
    "DataFrame.toArrow": lambda s: s.toArrow(),
    "DataFrame.toLocalIterator": lambda s: s.toLocalIterator(),
    "DataFrame.show": lambda s: s.show(),
    "DataFrame.isEmpty": lambda s: s.isEmpty(),
    "DataFrame.foreach": lambda s: s.foreach(print),
    "DataFrame.foreachPartition": lambda s: s.foreachPartition(print),
    "DataFrame.write": lambda s: s.write,
    "DataFrame.writeTo": lambda s: s.writeTo("t"),
    "DataFrame.writeStream": lambda s: s.writeStream.start(),
    "DataFrame.cache": lambda s: s.cache(),
    "DataFrame.checkpoint": lambda s: s.checkpoint(),
    "DataFrame.approxQuantile": lambda s: s.approxQuantile("value", [0.5], 0.1),
    "DataFrame.createOrReplaceTempView": lambda s: s.createOrReplaceTempView("v"),
    "SparkSession.stop": lambda s: s.sparkSession.stop(),
    "SparkSession.readStream": lambda s: s.sparkSession.readStream,
    "SparkContext.stop": lambda s: s.sparkSession.sparkContext.stop(),
    "RuntimeConfig.set": lambda s: s.sparkSession.conf.set("a", "b"),
    "SparkSession.sql": lambda s: s.sparkSession.sql("/* x */ SET spark.sql.ansi.enabled=false"),
    "Catalog.dropTempView": lambda s: s.sparkSession.catalog.dropTempView("v"),
    "UDFRegistration.register": lambda s: s.sparkSession.udf.register("u", add_one),
    "DataFrame.rdd": lambda s: s.rdd.map(str),
    "RDD.count": lambda s: s.sparkSession.sparkContext.parallelize([1]).count(),
    "GroupedData.pivot": lambda s: s.groupBy().pivot("value").count(),
    "SparkSession.Builder.config": lambda s: s.sparkSession.builder.config("a", "b").getOrCreate(),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_a_transform_that_runs_or_changes_something_is_refused(table, name):
    error = refused(table, ACTIONS[name])
    assert f"calls `{name}`" in error.message
    assert error.hint


def test_a_transform_may_make_rows_and_look_at_its_session(table):
    def joined(frame: DataFrame) -> DataFrame:
        spark = SparkSession.builder.appName("x").getOrCreate()
        assert (spark, spark.sparkContext.appName) == (frame.sparkSession, "transforms")
        assert spark.conf.get("spark.sql.shuffle.partitions")
        named = spark.createDataFrame([(1, "one"), (2, "two")], ["value", "name"])
        wide = frame.groupBy("value").pivot("value", [1, 2]).count()
        return frame.join(named, "value").join(f.broadcast(wide), "value").drop("1", "2")

    found = apply(table, [function(joined)])
    expected = table.sparkSession.createDataFrame(
        [(1, "one"), (2, "two")], "value LONG, name STRING"
    )
    require_same_rows(found, expected)


def test_after_a_transform_everything_is_allowed_again(spark, table):
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    before = dict(vars(Classic)), dict(vars(SparkSession))
    refused(table, ACTIONS["DataFrame.count"])
    apply(table, [function(lambda s: s.where("value > 0"))])
    assert table.count() == 3
    assert table.write is not None
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    assert (dict(vars(Classic)), dict(vars(SparkSession))) == before


def test_another_thread_may_act_while_a_transform_runs(table):
    seen = []

    def asks_elsewhere(frame: DataFrame) -> DataFrame:
        thread = threading.Thread(target=lambda: seen.append(table.count()))
        thread.start()
        thread.join(600)
        return frame

    apply(table, [function(asks_elsewhere)])
    assert seen == [3]


@pytest.mark.parametrize(
    ("result", "what"), [(None, "returned nothing"), (3, "returned a int"), ([], "a list")]
)
def test_a_transform_has_to_return_a_dataframe(table, result, what):
    error = refused(table, lambda _: result)
    assert what in error.message
    assert ("return" in error.hint) == (result is None)


def test_a_transform_that_fails_is_told_with_its_own_line(table):
    error = refused(table, lambda s: s.select("nothing_like_it"))
    assert "UNRESOLVED_COLUMN" in error.message
    assert "test_transform.py:" in error.message
    assert "JVM" not in error.message


def test_a_transform_that_exits_fails_as_any_other(table):
    error = refused(table, lambda _: sys.exit(0))  # it would end the process with exit code 0
    assert "SystemExit: 0" in error.message


def test_functions_are_applied_in_order_with_their_arguments(table):
    def add(frame: DataFrame, number: int) -> DataFrame:
        return frame.select((f.col("value") + number).alias("value"))

    def times(frame: DataFrame, number: int) -> DataFrame:
        return frame.select((f.col("value") * number).alias("value"))

    result = apply(table, [function(add, number=1), function(times, number=10)])
    expected = table.sparkSession.createDataFrame([(10,), (20,), (30,)], "value LONG")
    require_same_rows(result, expected)


def test_a_users_module_reaches_the_executors_without_being_installed(table, tmp_path):
    """The worker has no path to the module, so it must travel with the function."""
    folder = tmp_path / "pipelines" / "travels"
    folder.mkdir(parents=True)
    (folder / "helper_t.py").write_text("def plus(x):\n    return x + 100\n")
    (folder / "transform_t.py").write_text(
        "import os\n"
        "from pyspark.sql import functions as f\n"
        "from helper_t import plus\n"
        "def plus_here(x):\n"
        "    return plus(x) if os.getpid() != PID else None\n"
        "PID = os.getpid()\n"
        "def enrich(frame):\n"
        "    return frame.select(f.udf(plus_here, 'long')('value').alias('value'))\n"
    )

    class Step:
        python = "transform_t:enrich"
        arguments: dict[str, Any] = {}  # noqa: RUF012
        sql = name = None
        tables = ()

    functions = load([Step()], tmp_path, folder)
    assert set(functions[0].modules) == {"transform_t", "helper_t"}
    assert [row.value for row in apply(table, functions).collect()] == [100, 101, 102]
    with pytest.raises(Exception, match="No module named 'transform_t'"):
        not_by_value(functions[0], table)


def not_by_value(loaded: Function, table: DataFrame) -> None:
    """The same without its modules: shows that the test above tests something."""
    from pyspark import cloudpickle

    for name in loaded.modules:
        cloudpickle.unregister_pickle_by_value(sys.modules[name])
    bare = Function(loaded.python, loaded.arguments, loaded.call, ())
    apply(table, [bare]).collect()


def test_the_quickstarts_transform_keeps_orders_and_tells_their_origin(spark, stream):
    root = Path(__file__).parents[2]
    pipeline = load_pipeline(root / "pipelines" / "quickstart", {})
    functions = load(pipeline.transform, root, pipeline.folder)
    value = (
        b'{"order": 7, "customer": "c1", "product": "figs", "quantity": 3, "amount": 10.1,'
        b' "unknown": 1}'
    )
    columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"
    frame = spark.createDataFrame([(b"c1", value, "t", 2, 11)], columns)
    (row,) = apply(frame, functions).collect()
    assert bytes(row.key) == b"c1"
    assert (row.topic, row.partition, row.offset) == ("t", 2, 11)
    assert json.loads(row.value) == {
        "order": 7,
        "customer": "c1",
        "product": "figs",
        "quantity": 3,
        "amount": 10.1,
        "gross": 12.02,
        "origin": {"partition": 2, "offset": 11},
    }
    assert apply(frame, functions).collect() == [row]
    as_kafka = stream.selectExpr(
        "CAST(CAST(value AS STRING) AS BINARY) AS key",
        "CAST(CAST(value AS STRING) AS BINARY) AS value",
        "'t' AS topic",
        "0 AS partition",
        "value AS offset",
    )
    check_stream(apply(as_kafka, functions), "append")
