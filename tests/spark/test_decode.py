"""Kafka's bytes as columns on a real Spark: what is read, what is malformed, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from support.errors import raises
from support.spark.spark_session import local_spark

from eos.errors import AttemptFailedError, RecordRefusedError, TransformError
from eos.formats.expressions import Format
from eos.read.decode import Decode, RecordRule
from eos.read.dedup_by import Distinct
from eos.read.rejected_records import RejectedRecords
from eos.transform.functions import apply
from eos.transform.plan_check import check_stream
from eos.transform.sql import Query

pytestmark = pytest.mark.spark

KAFKA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
ORDER = Format(
    "json", "id BIGINT, name STRING, `a b` DOUBLE, at TIMESTAMP", ("id", "name", "a b", "at")
)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("decode") as session:
        session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        yield session


def records(spark: SparkSession, *values: bytes | None, key: bytes | None = b"k") -> DataFrame:
    rows = [(key, value, "in", 1, offset, None) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, KAFKA)


def read(decode: Decode, frame: DataFrame) -> tuple[list[dict], tuple[RejectedRecords, ...]]:
    out = decode.apply(frame)
    rows = [row.asDict(recursive=True) for row in out.collect()]
    return rows, decode.found(out, len(rows), frame)


def told(decode: Decode, records: int, topic: str, partition: int, offset: int) -> tuple:
    return (RejectedRecords("malformed", decode.on_error, records, topic, partition, offset),)


def test_json_columns_stand_beside_kafkas(spark):
    value = b'{"name": "x", "id": 7, "a b": 1, "other": [1], "at": "2026-11-21T10:00:00"}'
    decode = Decode(value=ORDER)
    ((row,), malformed) = read(decode, records(spark, value))
    assert malformed == ()
    columns = [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "id",
        "name",
        "a b",
        "at",
    ]
    assert list(row) == columns
    assert (row["id"], row["name"], row["a b"]) == (7, "x", 1.0)
    assert (bytes(row["value"]), row["topic"], row["offset"]) == (value, "in", 0)
    # Read as UTC's, whatever zone the session has.
    utc = decode.apply(records(spark, value)).selectExpr("unix_seconds(at) AS s").collect()[0].s
    assert utc == 1795255200


def test_a_key_is_read_likewise_and_a_struct_holds_what_would_clash(spark):
    decode = Decode(
        key=Format("json", "id INT", ("id",)),
        value=Format("json", "id INT, topic STRING", ("id", "topic"), column="order"),
    )
    frame = records(spark, b'{"id": 2, "topic": "t"}', None, key=b'{"id": 1}')
    (row, tombstone), malformed = read(decode, frame)
    assert malformed == ()
    assert (row["id"], row["order"], row["topic"]) == (1, {"id": 2, "topic": "t"}, "in")
    assert (tombstone["id"], tombstone["order"], tombstone["value"]) == (1, None, None)


def test_text_is_text_and_bytes_that_are_none_are_malformed(spark):
    decode = Decode(value=Format("string"))
    rows, malformed = read(decode, records(spark, b"a", b"\xff", b"", None, "\u00fc".encode()))
    assert [row["value"] for row in rows] == ["a", "", None, "\u00fc"]
    assert malformed == told(decode, 1, "in", 1, 1)
    assert bytes(rows[0]["key"]) == b"k"


BROKEN = {
    "no json": b"{",
    "not an object": b"3",
    "a list": b'[{"id": 1}]',
    "null": b"null",
    "nothing": b"",
    "blanks": b" \n ",
    "another type": b'{"id": "x"}',
    "a fraction": b'{"id": 1.5}',
    "too large": b'{"id": 99999999999999999999}',
    "no time": b'{"at": "yesterday"}',
    "no utf-8": b'{"name": "\xff"}',
    "required, and null": b'{"name": null}',
}


@pytest.mark.parametrize("why", BROKEN)
def test_what_can_not_be_read_is_left_out_and_counted(spark, why):
    order = Format(ORDER.kind, ORDER.schema, ORDER.columns, ("name",) if "required" in why else ())
    decode = Decode(value=order, on_error="drop")
    good = b' \n {"name": "x"}'
    rows, malformed = read(decode, records(spark, good, BROKEN[why], good, BROKEN[why]))
    assert [row["offset"] for row in rows] == [0, 2]
    assert malformed == told(decode, 2, "in", 1, 1)
    decode.require_none(malformed, "orders")


def test_the_first_is_told_by_topic_partition_and_offset(spark):
    rows = [(b"k", b"{", topic, 9 - offset, offset, None) for topic in "ba" for offset in (5, 3, 4)]
    frame = spark.createDataFrame(rows, KAFKA).repartition(3)
    decode = Decode(value=ORDER)
    _, malformed = read(decode, frame)
    assert malformed == told(decode, 6, "a", 4, 5)
    with raises("record_malformed", RecordRefusedError) as caught:
        decode.require_none(malformed, "orders")
    words = caught.value.message
    assert words.startswith("orders: the record a-4 at offset 5 ")
    assert "and 5 more in this micro-batch" in words
    assert caught.value.fields["source_offset"] == 5
    decode.require_none((), "orders")


def test_each_record_is_parsed_once_whatever_the_transforms_ask(spark):
    decode = Decode(value=ORDER, on_error="drop")
    query = Query("SELECT id, id * 2 AS twice, name FROM input WHERE id > 1 AND name = 'x'", "q")
    rows = records(spark, b'{"id": 2, "name": "x"}', b"{")
    out = apply(decode.apply(rows), [query])
    plan = out._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == 1
    assert [row.twice for row in out.collect()] == [4]
    assert decode.found(out, 1, rows)[0].records == 1


def test_a_union_of_the_input_with_itself_counts_a_record_once(spark):
    decode = Decode(value=ORDER, on_error="drop")
    query = Query("SELECT id FROM input UNION ALL SELECT -id FROM input WHERE id > 0", "q")
    rows = records(spark, b'{"id": 2}', b"{")
    out = apply(decode.apply(rows), [query])
    assert sorted(row.id for row in out.collect()) == [-2, 2]
    assert decode.found(out, 2, rows) == told(decode, 1, "in", 1, 1)


def test_the_count_is_there_behind_a_shuffle_and_without_rows(spark):
    """As a large micro-batch runs: encoded in many tasks, each with a manifest, then written."""
    decode = Decode(value=ORDER, on_error="drop")
    rows = records(spark, b'{"id": 2}', b"{", b'{"id": 3}', b"[]").repartition(2)
    schema = "writer int, id bigint"

    def with_manifest(batches):  # in here, so that workers get it by value
        yield from batches
        yield pa.RecordBatch.from_arrays(
            [pa.array([0], pa.int32()), pa.array([-1], pa.int64())], names=["writer", "id"]
        )

    def as_it_is(batches):
        return batches

    def job(condition: str, encode: Callable) -> tuple[list, tuple[RejectedRecords, ...]]:
        chosen = decode.apply(rows).where(condition).selectExpr("int(offset) % 3 AS writer", "id")
        shuffled = chosen.mapInArrow(encode, schema).repartitionById(3, "writer")
        made = shuffled.sortWithinPartitions("id").mapInArrow(as_it_is, schema)
        out = [row.id for row in made.collect() if row.id >= 0]
        return sorted(out), decode.found(made, len(out), rows)

    assert job("id > 0", with_manifest) == ([2, 3], told(decode, 2, "in", 1, 1))
    assert job("id > 7", with_manifest) == ([], told(decode, 2, "in", 1, 1))
    # Without manifests Spark throws away the stage that counted, once it sees that it is empty.
    assert job("id > 7", as_it_is) == ([], told(decode, 2, "in", 1, 1))


def test_rows_that_nobody_counted_do_not_pass(spark):
    decode = Decode(value=ORDER)
    rows = records(spark, b"{")
    nothing = decode.apply(rows).where("false")  # the optimizer reads none
    nothing.collect()
    assert decode.found(nothing, 0, rows) == told(decode, 1, "in", 1, 0)
    with pytest.raises(AttemptFailedError):
        decode.found(nothing, 1, rows)


def test_bytes_that_stay_bytes_cost_nothing(spark):
    frame = records(spark, b"x")
    assert Decode().apply(frame) is frame
    assert Decode().found(frame, 5, frame) == ()


def test_the_stream_may_run(spark):
    stream = spark.readStream.format("rate").load()
    as_kafka = stream.selectExpr(
        "CAST(null AS BINARY) AS key",
        "CAST('{}' AS BINARY) AS value",
        "'t' AS topic",
        "0 AS partition",
        "value AS offset",
        "timestamp",
        "0 AS timestampType",
    )
    for decode in (Decode(value=ORDER), Decode(key=Format("string"), on_error="drop")):
        check_stream(decode.apply(as_kafka), "append")


def test_a_schema_that_passes_here_passes_in_spark(spark):
    schema = (
        "a DEC(10, 2) NOT NULL COMMENT 'it''s', b ARRAY<STRUCT<x: INT, `y z` MAP<STRING, DATE>>>, "
        "c NUMERIC, d TIMESTAMP_NTZ, e VARIANT, f REAL, date DATE"
    )
    decode = Decode(value=Format("json", schema, (*"abcdef", "date"), ("a",)))
    value = {"a": 1.5, "b": [{"x": 1, "y z": {"k": "2026-01-01"}}], "c": 3, "f": 1, "e": {}}
    rows, malformed = read(decode, records(spark, json.dumps(value).encode(), b"{}"))
    assert [str(row["a"]) for row in rows] == ["1.50"]
    assert malformed[0].records == 1


RULES = (
    RecordRule("paid", "amount > 0", "dead_letter"),
    RecordRule("named", "name <> '' -- all", "drop"),
)
PRICED = Format("json", "amount INT, name STRING", ("amount", "name"))


def test_a_rule_that_is_not_true_refuses_a_record_and_the_first_one_is_told(spark):
    decode = Decode(value=PRICED, on_error="dead_letter", rules=RULES)
    values = [
        b'{"amount": 1, "name": "x"}',
        b'{"amount": 0, "name": "x"}',  # 1: not paid
        b'{"name": "x"}',  # 2: null is not true
        b'{"amount": 0, "name": ""}',  # 3: neither, and the first rule is told
        b'{"amount": 1, "name": ""}',  # 4: not named
        b"{",  # 5
        None,  # 6: a tombstone has no amount
    ]
    rows, refused = read(decode, records(spark, *values))
    assert [(row["offset"], row["amount"], row["name"]) for row in rows] == [(0, 1, "x")]
    assert "__eos" not in " ".join(rows[0])
    assert refused == (
        RejectedRecords("malformed", "dead_letter", 1, "in", 1, 5),
        RejectedRecords("paid", "dead_letter", 4, "in", 1, 1),
        RejectedRecords("named", "drop", 1, "in", 1, 4),
    )
    decode.require_none(refused, "orders")
    dead = decode.dead_letters(records(spark, *values)).collect()
    assert [row.offset for row in dead] == [1, 2, 3, 5, 6]
    assert [row.value and bytes(row.value) for row in dead] == [values[n] for n in (1, 2, 3, 5, 6)]
    assert [row["__eos_rule"] for row in dead] == ["paid"] * 3 + ["malformed", "paid"]
    assert dead[0]["__eos_error"] == "not true: amount > 0"
    assert dead[3]["__eos_error"] == "the value does not fit its schema"


def test_dead_letters_keep_the_bytes_that_a_text_would_not(spark):
    decode = Decode(key=Format("string"), value=Format("string"), on_error="dead_letter")
    (dead,) = decode.dead_letters(records(spark, b"ok", key=b"\xff\xfe")).collect()
    assert (bytes(dead.key), bytes(dead.value)) == (b"\xff\xfe", b"ok")
    assert dead["__eos_error"] == "the key is no UTF-8 text"


def test_a_rule_may_be_asked_of_bytes_that_nobody_reads(spark):
    decode = Decode(rules=(RecordRule("short", "length(value) < 3 AND topic = 'in'"),))
    rows, refused = read(decode, records(spark, b"abc", b"ab"))
    assert [row["offset"] for row in rows] == [1]
    with raises("record_rule_failed", RecordRefusedError) as caught:
        decode.require_none(refused, "orders")
    assert "the record in-1 at offset 0 does not meet the rule `short`" in caught.value.message


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("amuont > 0", "amuont"),
        ("amount + 1", "has type int; expected a condition"),
        ("amount > > 1", "(line 1, pos 9)"),
        ("count(*) > 1", "the rule `odd` of `expect`"),
    ],
)
def test_a_rule_that_is_no_condition_is_told_by_its_name(spark, condition, words):
    decode = Decode(value=PRICED, rules=(RULES[0], RecordRule("odd", condition)))
    with pytest.raises(TransformError) as caught:
        decode.apply(records(spark, b"{}"))
    assert "the rule `odd` of `expect`" in caught.value.message
    assert words in caught.value.message
    assert "== SQL ==" not in caught.value.message


def test_a_record_is_parsed_once_though_rules_and_steps_ask_for_it(spark):
    decode = Decode(value=PRICED, on_error="drop", rules=RULES)
    out = apply(decode.apply(records(spark, b"{}")), [Query("SELECT amount + 1 FROM input", "q")])
    dead = Decode(value=PRICED, on_error="dead_letter", rules=RULES).dead_letters(
        records(spark, b"")
    )
    for each in (out, dead):
        plan = each._jdf.queryExecution().optimizedPlan().toString()
        assert plan.count("from_json(") == 1


def test_of_one_table_dedup_by_columns_takes_each_key_once(spark):
    """As the tests of a pipeline file do: the first by offset, whatever its time is."""
    days = ("28", "20", "01")
    values = [
        b'{"id": %d, "at": "2026-11-%sT00:00:00Z"}' % (n, day.encode())
        for n, day in zip((1, 1, 2), days, strict=True)
    ]
    decode = Decode(
        value=Format("json", "id BIGINT, at TIMESTAMP", ("id", "at")),
        distinct=Distinct(("id",), 86_400_000, "at"),
    )
    rows, _ = read(decode, records(spark, *values))
    assert [(row["id"], row["offset"]) for row in rows] == [(1, 0), (2, 2)]
    stream = spark.readStream.format("rate").load().selectExpr("value AS id", "timestamp")
    hours = Distinct(("id",), 3_600_000, "timestamp").apply(stream)
    hours = hours.groupBy("id", f.window("timestamp", "1 hour")).count()
    state = check_stream(hours, "append")
    assert state.operators == ("Aggregate", "DeduplicateWithinWatermark")
    assert state.is_bounded
    with raises("dedup_column_missing", TransformError):
        Decode(distinct=Distinct(("no",), 1, "timestamp")).apply(records(spark))
    with raises("dedup_watermark_type", TransformError):
        Decode(distinct=Distinct(("key",), 1, "key")).apply(records(spark))
