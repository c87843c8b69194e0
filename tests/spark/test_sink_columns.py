"""What sinks make of rows, on a real Spark: types, nulls, order; and what passing on costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.clientserver import JavaClient
from pyspark.sql import DataFrame, SparkSession
from support.errors import raises
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.encode.stage import EncodeStage
from eos.errors import TransformError
from eos.kafka.target_partitions import Targets
from eos.pipeline_tests.runner import check
from eos.plan.plan import Plan, plan
from eos.spark.session import look_up_once
from eos.spark.sink_columns import sink_columns
from eos.spark.steps import mapped
from eos.transform.plan_check import check_stream
from eos.transform.sql import Query

pytestmark = pytest.mark.spark

HEADERS = "array(named_struct('key', 'a', 'value', X'FF'))"
TEXT = """\
version: 1
name: orders
source: {kafka: {topic: orders}}
sink:
  kafka:
"""
ROWS = """
  SELECT CAST('k' AS BINARY) AS key, CAST(IF(id = 3, NULL, 'v') AS BINARY) AS value, id,
    CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers, 'in' AS topic,
    1 AS partition, id AS offset, TIMESTAMP'2026-11-21 10:00:00.123456' AS at, id * 1.5 AS amount,
    IF(id = 1, NULL, 'n') AS name, 'VIII' AS `a b`
  FROM range(4)
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("sinks") as session:
        yield session


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS)


def planned(folder: Path, *sinks: str) -> Plan:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT + "".join(f"    - {sink}\n" for sink in sinks))
    return plan(load_pipeline(path, {}), load_profile(None, folder, {}), ("a:1",), ())


def column(frame: DataFrame, name: str) -> list:
    found = [row[name] for row in frame.collect()]
    return [bytes(each) if isinstance(each, bytearray) else each for each in found]


def test_passing_on_is_one_projection_of_what_came(rows, tmp_path):
    kafka = rows.select("key", "value", "topic", "partition", "offset", "headers")
    made = sink_columns(kafka, planned(tmp_path, "topic: out", "topic: more"))
    assert made.columns == ["key", "value", "headers", "__at", "__topic"]
    text = made._jdf.queryExecution().analyzed().toString()
    assert (
        text.count("Project [")
        == kafka._jdf.queryExecution().analyzed().toString().count("Project [") + 1
    )
    assert "json" not in text
    assert "Filter" not in text


def test_json_has_every_column_but_kafkas_in_order_with_nulls_and_tombstones(rows, tmp_path):
    found = planned(tmp_path, "{topic: out, value: json}")
    (value,) = found.outputs.columns
    out = column(sink_columns(rows, found), value)
    assert out[0] == (
        '{"id":0,"at":"2026-11-21T10:00:00.123456Z","amount":0.0,"name":"n","a b":"VIII"}'
    )
    assert json.loads(out[1])["name"] is None
    assert out[3] is None
    chosen = planned(tmp_path, "{topic: out, value: {json: [name, Offset]}, key: {json: [id]}}")
    key, value = chosen.outputs.columns
    made = sink_columns(rows, chosen)
    assert column(made, value) == [
        '{"name":"n","Offset":0}',
        '{"name":null,"Offset":1}',
        '{"name":"n","Offset":2}',
        None,
    ]
    assert column(made, key)[3] == '{"id":3}'  # a tombstone keeps its key
    without = rows.drop("value")
    assert None not in column(sink_columns(without, chosen), value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("id", "2"),
        ("amount", "3.0"),
        ("id > 1", "true"),
        ("DATE'2026-11-21'", "2026-11-21"),
        ("upper(name) -- and a remark", "N"),
        ("key", b"k"),
        ("string", b"k"),
        ("concat(name, ':', id)", "n:2"),
        ("`a b`", "VIII"),
    ],
)
def test_a_key_is_any_expression_with_a_text(rows, tmp_path, expression, expected):
    found = planned(tmp_path, f'{{topic: out, key: "{expression}"}}')
    (name,) = found.outputs.columns
    assert column(sink_columns(rows, found), name)[2] == expected


def test_headers_are_what_is_said_or_what_came(rows, tmp_path):
    found = planned(
        tmp_path, "{topic: a, headers: {id: id, who: name, it's: key}}", "{topic: b, headers: {}}"
    )
    first, second = (sink.headers_column for sink in found.sinks)
    made = sink_columns(rows, found)
    headers = [(h.key, h.value and bytes(h.value)) for h in column(made, first)[1]]
    assert headers == [("id", b"1"), ("who", None), ("it's", b"k")]
    assert column(made, second) == [[]] * 4


def test_packed_headers_are_keys_and_then_values(rows, tmp_path):
    two = "array(struct('a' AS key, X'01' AS value), struct('b' AS key, NULL AS value))"
    some = f"IF(id = 0, CAST({two} AS ARRAY<STRUCT<key: STRING, value: BINARY>>), headers)"
    found = planned(tmp_path, "topic: a", "{topic: b, headers: {id: id, who: name}}")
    given = rows.selectExpr("key", "value", "id", "name", f"{some} AS headers")
    made = sink_columns(given, found, is_packed=True)
    assert "__topic" not in made.columns
    assert column(made, "headers") == [[b"a", b"b", b"\1", None], [], [], []]
    own = found.sinks[1].headers_column
    assert column(made, own)[1] == [b"id", b"who", b"1", None]


def test_headers_of_another_type_are_told_at_the_start(rows, tmp_path):
    odd = rows.selectExpr("key", "value", "array(key) AS headers")
    with raises("sink_headers_type"):
        sink_columns(odd, planned(tmp_path, "topic: a"))
    sink_columns(odd, planned(tmp_path, "{topic: a, headers: {}}"))


def test_each_sink_gets_its_rows_from_one_evaluation(rows, tmp_path):
    found = planned(
        tmp_path,
        "{topic: all, key: id, value: json}",
        "{topic: large, key: id, value: json, where: amount > 1}",
        "{topic: named, key: id, where: name = 'n'}",
        "{topic: nobody, where: id > 7}",
    )
    made = sink_columns(rows, found)
    assert made._jdf.queryExecution().analyzed().toString().count("to_json(") == 1
    targets = Targets.of(dict.fromkeys(found.sink_topics, (1, 1 << 20)))
    stage = EncodeStage(found.sinks, targets, n_writers=1, base_timestamp_ms=0)
    out = [
        row
        for batch in stage.encode(iter(made.toArrow().to_batches()), 0)
        for row in batch.to_pylist()
    ]
    records = {row["target"]: row["records"] for row in out[:-1]}
    assert records == {0: 4, 1: 3, 2: 3}  # name is null in a row: it is not there


def test_rows_that_no_sink_wants_do_not_leave_spark(rows, tmp_path):
    found = planned(tmp_path, "{topic: a, where: id = 0}", "{topic: b, where: id = 2, value: json}")
    made = sink_columns(rows, found)
    assert column(made, "__at") == [0 << 16 | 1, 2 << 16 | 1]


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("{topic: a, key: at}", "sink 1: key is of type timestamp; a Kafka sink writes bytes"),
        ("{topic: a, value: 'array(id)'}", "sink 1: value is of type array<bigint>"),
        ("{topic: a, headers: {x: at}}", "sink 1: headers x is of type timestamp"),
        ("{topic: a, where: id}", "sink 1: where is of type bigint; expected a condition"),
        ("{topic: a, value: {json: [id, nme]}}", "sink 1: value needs column `nme`"),
        ("{topic: a, key: nme}", "sink 1: key: [UNRESOLVED_COLUMN"),
        ("{topic: a, key: id, where: 'id >'}", "sink 1: where: [PARSE_SYNTAX_ERROR]"),
        ("{topic: {column: nme, topics: [a]}}", "the sink needs column `nme`"),
    ],
)
def test_what_can_not_be_written_is_told_with_its_place(rows, tmp_path, sink, message):
    with pytest.raises(TransformError) as caught:
        sink_columns(rows, planned(tmp_path, sink))
    assert message in caught.value.message
    assert "JVM" not in caught.value.message


def test_json_of_kafkas_columns_only_is_refused(rows, tmp_path):
    with raises("sink_columns_empty"):
        sink_columns(rows.select("key", "value"), planned(tmp_path, "{topic: a, value: json}"))


def test_a_result_without_value_is_told_what_would_write_it(rows, tmp_path):
    with raises("sink_value_missing") as caught:
        sink_columns(rows.drop("value"), planned(tmp_path, "topic: a"))
    assert "`value: json`" in caught.value.hint
    sink_columns(rows.drop("value"), planned(tmp_path, "{topic: a, value: json}"))


def test_without_a_key_column_records_have_none(rows, tmp_path):
    assert (
        column(sink_columns(rows.drop("key"), planned(tmp_path, "topic: a")), "key") == [None] * 4
    )


def test_kafkas_columns_are_found_in_any_case_as_spark_finds_them(rows, tmp_path):
    other = rows.selectExpr("key AS Key", "value AS VALUE", f"{HEADERS} AS Headers")
    made = sink_columns(other, planned(tmp_path, "topic: a"))
    assert column(made, "key") == [b"k"] * 4
    assert column(made, "value") == [b"v", b"v", b"v", None]
    assert [len(row.headers) for row in made.collect()] == [1] * 4
    own = rows.selectExpr("id AS Key", "value")
    assert column(sink_columns(own, planned(tmp_path, "topic: a")), "key") == [None] * 4


def test_an_aggregate_in_a_sink_is_refused_as_in_a_step(spark, tmp_path):
    counted = planned(tmp_path, "topic: a")
    group = Query("SELECT value, count(*) FROM input GROUP BY value", "q")
    with raises("stream_unsupported", TransformError):
        check(spark, replace(counted, transforms=(group,)))
    assert check(spark, counted) == ()
    stream = spark.readStream.format("rate").load().selectExpr("'v' AS value", "value AS id")
    with pytest.raises(TransformError):
        check_stream(sink_columns(stream, planned(tmp_path, "{topic: a, key: max(id)}")), "append")


def test_a_plan_looks_up_no_name_in_the_jvm_again(rows, tmp_path, monkeypatch):
    """Each takes half a millisecond of a small micro-batch."""
    asked, send = [], JavaClient.send_command

    def noted(client, command, *more):
        asked.append(command)
        return send(client, command, *more)

    monkeypatch.setattr(JavaClient, "send_command", noted)
    passed_on = planned(tmp_path, "topic: a")

    def lookups():
        asked.clear()
        mapped(sink_columns(rows, passed_on, is_packed=True), lambda parts: parts, "id BIGINT")
        assert len(asked) > 20
        return [command for command in asked if command.startswith("r\n")]

    assert lookups(), "Spark itself does not look up anything any more"
    look_up_once(rows.sparkSession)
    assert lookups() == []


def test_a_column_of_another_type_than_kafkas_is_the_users(spark, tmp_path):
    """A null reading named `value` is no tombstone, and all such columns are in the object."""
    named = """
        SELECT id AS key, IF(id = 1, NULL, id * 1.5) AS value, 7 AS topic, 'p' AS partition,
          'o' AS offset, 'now' AS timestamp, 'kind' AS timestampType FROM range(2)
    """
    sinks = "{topic: a, key: key, value: json}", "{topic: b, value: {json: [key, value]}, key: key}"
    out, wanted = spark.sql(named), planned(tmp_path, *sinks)
    made = sink_columns(out, wanted)
    every, two = (column(made, sink.value_column) for sink in wanted.sinks)
    rest = {"topic": 7, "partition": "p", "offset": "o", "timestamp": "now"}
    assert [json.loads(each) for each in every] == [
        {"key": n, "value": reading, **rest, "timestampType": "kind"}
        for n, reading in enumerate((0.0, None))
    ]
    assert [json.loads(each) for each in two] == [
        {"key": 0, "value": 0.0},
        {"key": 1, "value": None},
    ]


def test_a_null_that_is_kafkas_value_stays_a_tombstone(spark, tmp_path):
    out = spark.sql("SELECT id, CAST(IF(id = 1, NULL, 'v') AS STRING) AS value FROM range(2)")
    wanted = planned(tmp_path, "{topic: a, key: id, value: json}")
    assert column(sink_columns(out, wanted), wanted.sinks[0].value_column) == ['{"id":0}', None]
