"""Avro in and out, beside a library that shares no code with Spark's."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession
from support.errors import raises
from support.inputs import damaged_inputs
from support.kafka import kafka_io
from support.kafka.kafka_io import NOW_MS, Record
from support.kafka.schemas import registry
from support.spark.project import Project
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.config.registry import Registry
from eos.deadline import Deadline
from eos.errors import TransformError
from eos.formats.expressions import Format
from eos.formats.schema_ids import Writers
from eos.micro_batch.java_client_errors import avro_refusal
from eos.pipeline_tests.runner import run_case
from eos.plan.plan import Plan, plan
from eos.read import decode as decode_module
from eos.read.decode import Decode
from eos.read.rejected_records import RejectedRecords
from eos.spark.failure import Failure
from eos.spark.sink_columns import sink_columns
from eos.startup.registered_schemas import with_latest
from eos.transform.functions import load

pytestmark = pytest.mark.spark

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "it's \\ {an} order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
WRITTEN: dict[str, Any] = {
    "type": "record",
    "name": "Written",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "gross", "type": ["null", "double"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
    ],
}
PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{avro: {{file: order.avsc}}}}
  on_error: dead_letter
transform: [{{sql: "SELECT int(id) AS id, price * 2 AS gross, kind, value, name FROM input"}}]
sink:
  kafka:
    topic: {target}
    key:
      avro: >
        {{"type": "record", "name": "Key",
        "fields": [{{"name": "id", "type": ["null", "int"]}}]}}
    value: {{avro: {{file: written.avsc}}}}
    create: {{partitions: {partitions}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: 1}}}}
trigger: {{available_now: true}}
tests:
  - name: a mapping is the record that it means
    input:
      - value: {{id: 7, at: "2026-11-21T10:00:00Z", price: 1.25, kind: NEW, tags: [x]}}
      - value: no order
    output:
      - {{topic: {target}, key: {{id: 7}}, value: {{id: 7, gross: 2.5, kind: NEW}}}}
      - {{topic: {target}.dlq, value: no order}}
"""
KAFKA = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"


def declare(project: Project) -> None:
    project.declare(1000, 1, PIPELINE)
    folder = project.folder / "pipelines" / project.name
    (folder / "order.avsc").write_text(json.dumps(ORDER))
    (folder / "written.avsc").write_text(json.dumps(WRITTEN))


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"n{number}" if number % 2 else None,
        "at": dt.datetime(2026, 11, 21, 10, tzinfo=dt.timezone.utc),
        "price": Decimal(number) / 4,
        "kind": ("NEW", "OLD")[number % 2],
        "tags": ["a"] * (number % 3),
    }


def encoded(value: dict[str, Any], schema: dict[str, Any] = ORDER) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(value: bytes, schema: dict[str, Any]) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(schema), None)


@pytest.mark.nightly
def test_a_schema_that_avro_itself_refuses_is_told(spark, project):
    declare(project)
    folder = project.folder / "pipelines" / project.name
    profile = load_profile(str(project.profile), project.folder)
    frame = spark.createDataFrame([], KAFKA)
    for file, place in (
        ("order.avsc", "Spark can't use the Avro schema of the value: "),
        ("written.avsc", "sink 1: value: "),
    ):
        declare(project)
        odd = {**(ORDER if file == "order.avsc" else WRITTEN), "namespace": "it's"}
        (folder / file).write_text(json.dumps(odd))
        found = plan(load_pipeline(folder), profile, (), ())
        with pytest.raises(TransformError) as caught:
            sink_columns(found.decode.apply(frame).selectExpr("*", "1 AS gross"), found)
        assert caught.value.message.startswith(place)
        assert caught.value.message.endswith("Illegal character in: it's")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_spark("avro") as session:
        yield session


@pytest.fixture
def planned(project: Project) -> Plan:
    declare(project)
    path = project.folder / "pipelines" / project.name / "pipeline.yaml"
    return plan(load_pipeline(path), load_profile(str(project.profile), project.folder), (), ())


@pytest.mark.long
def test_what_is_no_record_of_the_schema_is_told_from_one_of_nulls(spark, planned):
    values = [encoded(order(1)), b"", b"\xff\xff", encoded(order(1))[:3], None, encoded(order(2))]
    rows = [(b"k", value, "in", 0, at, None) for at, value in enumerate(values)]
    frame = spark.createDataFrame(rows, KAFKA)
    out = planned.decode.apply(frame)
    found = [row.asDict() for row in out.collect()]
    assert [row["offset"] for row in found] == [0, 4, 5]
    assert [row["id"] for row in found] == [1, None, 2]
    assert (found[0]["name"], found[0]["price"], found[0]["kind"]) == ("n1", Decimal("0.25"), "OLD")
    assert planned.decode.found(out, 3, frame) == (
        RejectedRecords("malformed", "dead_letter", 3, "in", 0, 1),
    )
    dead = planned.decode.dead_letters(frame).collect()
    assert [bytes(row.value) for row in dead] == values[1:4]
    assert dead[0]["__eos_error"] == "the value is no Avro record of its schema"


@pytest.mark.long
def test_fields_are_cast_to_the_schemas_types_and_missing_ones_are_told(spark, planned):
    rows = spark.sql("SELECT 7 AS ID, 1.5 AS gross, 'NEW' AS kind, X'01' AS value")
    _, value = planned.outputs.columns
    made = sink_columns(rows, planned).collect()[0]
    assert decoded(bytes(made[value]), WRITTEN) == {"id": 7, "gross": 1.5, "kind": "NEW"}
    for words in ("'NEW' AS kind, CAST(NULL AS BIGINT) AS id", "'ODD' AS kind, 7 AS id"):
        odd = rows.selectExpr("gross", "value", *words.split(", "))
        with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark has many
            sink_columns(odd.repartition(1), planned).collect()
        assert "does not fit the Avro schema" in avro_refusal(Failure.of(caught.value)).message
    assert avro_refusal(Failure.of(ValueError("else"))) is None
    with raises("sink_column_not_returned") as missing:
        sink_columns(rows.drop("kind"), planned)
    assert missing.value.message.startswith("sink 1: value needs column `kind`")
    with raises("sink_expression_aggregates"):
        sink_columns(rows.selectExpr("array(1) AS id", "gross", "kind", "value"), planned)


@pytest.mark.long
@pytest.mark.parametrize(
    "subject", ["", pytest.param(", subject: orders-value", marks=pytest.mark.long)]
)
def test_a_files_tests_write_avro_as_mappings(spark, project, subject):
    """Also of a schema registry, which they don't ask."""
    declare(project)
    path = project.folder / "pipelines" / project.name / "pipeline.yaml"
    path.write_text(re.sub(r"(?<=\.avsc)", subject, path.read_text()))
    pipeline = load_pipeline(path)
    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    profile = load_profile(str(project.profile), project.folder)
    outcome = run_case(spark, plan(pipeline, profile, (), functions), pipeline.tests[0])
    assert outcome.is_passed, outcome


@pytest.mark.long
def test_a_files_tests_ask_the_registry_for_a_schema_that_is_there_alone(spark, project):
    declare(project)
    path = project.folder / "pipelines" / project.name / "pipeline.yaml"
    schema = json.loads((path.parent / "order.avsc").read_text())
    path.write_text(path.read_text().replace("file: order.avsc", "subject: orders-value"))
    pipeline = load_pipeline(path)
    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    planned = plan(pipeline, load_profile(str(project.profile), project.folder), (), functions)
    with registry() as asked:
        asked.add("orders-value", {**schema, "fields": schema["fields"][:1]})
        asked.add("orders-value", schema)
        found = with_latest(planned, Registry(url=asked.url))
    outcome = run_case(spark, found, pipeline.tests[0])
    assert outcome.is_passed, outcome


@pytest.mark.long
def test_ids_that_nobody_knew_are_asked_for_after_any_number_of_misses(spark, monkeypatch) -> None:
    monkeypatch.setattr(decode_module, "PAGE_IDS", 10)
    asked: list[int] = []

    def ask(number: int, _deadline: Deadline) -> str | None:
        asked.append(number)
        return json.dumps(ORDER) if number == 7 else None

    text = json.dumps(ORDER)
    value = Format("avro", text, ("id",), subject="s", writers=Writers({1: text}, ask))
    decode = Decode(value=value, on_error="drop")
    ids = [*range(1000, 1025), 7, 1]
    values = [b"\0" + each.to_bytes(4, "big") + encoded(order(each)) for each in ids]
    rows = [(b"k", value, "in", 0, at, None) for at, value in enumerate(values)]
    frame = spark.createDataFrame(rows, KAFKA)
    assert [row.id for row in decode.apply(frame).collect()] == [1]
    assert decode.learned(frame) == ["id 7 of the value"]
    assert sorted(asked) == sorted(ids[:-1])
    assert [row.id for row in decode.apply(frame).collect()] == [7, 1]
    assert decode.learned(frame) == []
    assert len(asked) == len(ids) - 1


@pytest.mark.long
def test_a_registered_schema_that_avro_refuses_makes_its_records_malformed(spark) -> None:
    """Any producer may register one, in a registry that does not check."""
    text = json.dumps(ORDER)
    known = {1: text, 2: "no JSON", 3: '"string"', 4: "{}", 5: "", 6: '{"type": "record"}'}
    value = Format("avro", text, ("id",), subject="s", writers=Writers(known))
    decode = Decode(value=value, on_error="drop")
    values = [b"\0" + each.to_bytes(4, "big") + encoded(order(each)) for each in known]
    rows = [(b"k", value, "in", 0, at, None) for at, value in enumerate(values)]
    frame = spark.createDataFrame(rows, KAFKA)
    assert [row.id for row in decode.apply(frame).collect()] == [1]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bytes", "string", {"type": "array", "items": "null"}])
def test_a_length_of_two_billion_is_no_two_billion_bytes(spark, kind: Any) -> None:
    """Avro allocates what a length claims; a JVM that runs out of memory ends the run."""
    schema = {"type": "record", "name": "A", "fields": [{"name": "a", "type": kind}]}
    decode = Decode(value=Format("avro", json.dumps(schema), ("a",)), on_error="drop")
    claimed = b"\xee\xff\xff\xff\x0f\x41"  # 2^31 - 9: the most that Java's arrays hold
    empty = b"\x00"
    rows = [(b"k", value, "in", 0, at, None) for at, value in enumerate([claimed, empty])]
    frame = spark.createDataFrame(rows, KAFKA)
    assert [len(row.a) for row in decode.apply(frame).collect()] == [0]


@pytest.mark.nightly
def test_a_hundred_thousand_damaged_values_are_rows_or_malformed(spark) -> None:
    decode = Decode(value=Format("avro", json.dumps(ORDER), ("id",)), on_error="drop")
    values = [encoded(order(7)), *damaged_inputs("Avro values", encoded(order(7)))]
    rows = [(b"k", value, "in", 0, at, None) for at, value in enumerate(values)]
    found = decode.apply(spark.createDataFrame(rows, KAFKA)).count()
    assert 1 < found < len(values)


@pytest.mark.long
def test_avro_comes_and_goes_through_kafka(project: Project) -> None:
    declare(project)
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    values = [encoded(order(n)) for n in range(100)]
    values[10] = b"no order"
    values[20] = None
    records = [Record(0, b"k", value, (), NOW_MS) for value in values]
    kafka_io.write_records(project.broker.bootstrap, project.source, records)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert "1 malformed record sent to the dead letters" in done.stderr
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    expected = [
        {"id": n, "gross": n / 2, "kind": order(n)["kind"]} for n in range(100) if n not in (10, 20)
    ]
    assert [decoded(row.value, WRITTEN) for row in rows if row.value] == expected
    assert sum(row.value is None for row in rows) == 1
