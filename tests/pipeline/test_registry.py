"""Avro records with the ids of a schema registry, in and out, beside a library of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from support.kafka import kafka_io
from support.kafka.kafka_io import NOW_MS, Record
from support.kafka.schemas import FakeRegistry, registry
from support.spark.project import Project

pytestmark = pytest.mark.spark

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "was", "type": "string"}],
}
READER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": "string", "default": "old"},
    ],
}
ELSEWHERE: dict[str, Any] = {**READER, "doc": "of another subject"}
PLACE: dict[str, Any] = {
    "type": "record",
    "name": "com.places.Place",
    "fields": [{"name": "street", "type": "string"}],
}
# The first type that it names is another subject's.
PLACED: dict[str, Any] = {
    **READER,
    "fields": [
        {"name": "from", "type": "com.places.Place"},
        {"name": "to", "type": ["null", "com.places.Place"]},
        *READER["fields"],
    ],
}
KEY: dict[str, Any] = {
    "type": "record",
    "name": "Key",
    "fields": [{"name": "id", "type": "long"}],
}
WRITTEN: dict[str, Any] = {
    "type": "record",
    "name": "Written",
    "fields": [{"name": "id", "type": "long"}, {"name": "kind", "type": "string"}],
}
PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{avro: {{file: order.avsc, subject: orders-value}}}}
  on_error: dead_letter
sink:
  kafka:
    topic: {target}
    value: {{avro: {{file: written.avsc, subject: written-value, register: true}}}}
    create: {{partitions: {partitions}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: 1}}}}
trigger: {{available_now: true}}
"""


@pytest.fixture
def asked() -> Iterator[FakeRegistry]:
    with registry() as made:
        yield made


def declare(project: Project) -> None:
    project.declare(1000, 1, PIPELINE)
    folder = project.folder / "pipelines" / project.name
    (folder / "order.avsc").write_text(json.dumps(READER))
    (folder / "written.avsc").write_text(json.dumps(WRITTEN))


def framed(number: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out, known = io.BytesIO(), {}
    fastavro.parse_schema(PLACE, known)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, known), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def written(value: bytes | None, asked: FakeRegistry) -> Any:
    assert value is not None
    assert value[0] == 0
    schema = json.loads(asked.schemas[int.from_bytes(value[1:5], "big")])
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None)


def test_each_record_is_read_by_the_schema_that_it_was_written_by(
    project: Project, asked: FakeRegistry
) -> None:
    declare(project)
    project.profile.write_text(project.profile.read_text() + f'registry: {{url: "{asked.url}"}}\n')
    first, second = asked.add("orders-value", FIRST), asked.add("orders-value", READER)
    other = asked.add("elsewhere", ELSEWHERE)
    asked.add("place", PLACE)
    third = asked.add("orders-value", PLACED, ("place", 1))
    strange = asked.add("strange-value", 'syntax = "proto3";')
    asked.kinds[strange] = "PROTOBUF"
    at = {"street": "a"}
    values = [
        framed(first, FIRST, {"id": 1, "was": "x"}),
        framed(second, READER, {"id": 2, "kind": "new"}),
        framed(other, ELSEWHERE, {"id": 3, "kind": "strange"}),
        framed(77, READER, {"id": 4, "kind": "nobody's"}),
        b"no order",
        framed(first, FIRST, {"id": 1, "was": "x"})[:6],
        b"\0" + strange.to_bytes(4, "big") + b"\0",
        None,
        framed(third, PLACED, {"from": at, "to": at, "id": 5, "kind": "placed"}),
    ]
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    records = [Record(0, b"k", value, (), NOW_MS) for value in values]
    kafka_io.write_records(project.broker.bootstrap, project.source, records)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert "the schema registry has new schemas: id 1002 of the value" in done.stderr
    assert "4 malformed records sent to the dead letters" in done.stderr
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    assert [written(row.value, asked) for row in rows if row.value] == [
        {"id": 1, "kind": "old"},
        {"id": 2, "kind": "new"},
        {"id": 3, "kind": "strange"},
        {"id": 5, "kind": "placed"},
    ]
    assert sum(row.value is None for row in rows) == 1
    assert asked.subjects["written-value"]
    dead = kafka_io.read_records(project.broker.bootstrap, f"{project.target}.dlq")
    assert [letter.value for letter in dead] == values[3:7]
    reasons = [letter.told["eos.error"] for letter in dead]
    assert reasons == [
        "the schema id 77 before the value has no Avro schema in the registry",
        "the value has no schema id before it: five bytes, of which the first is 0",
        "the value is no Avro record of its schema",
        f"the schema id {strange} before the value has no Avro schema in the registry",
    ]


@pytest.mark.long
def test_without_files_the_latest_schemas_of_each_start_read_and_write(
    project: Project, asked: FakeRegistry
) -> None:
    text = PIPELINE.replace("file: order.avsc, ", "")
    sink = "value: {{avro: {{file: written.avsc, subject: written-value, register: true}}}}"
    latest = "key: {{avro: {{subject: out-key}}}}\n    value: {{avro: {{subject: out-value}}}}"
    project.declare(1000, 1, text.replace(sink, latest))
    project.profile.write_text(project.profile.read_text() + f'registry: {{url: "{asked.url}"}}\n')
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    first, key = asked.add("orders-value", FIRST), asked.add("out-key", KEY)
    value = framed(first, FIRST, {"id": 1, "was": "x"})
    wanted = []
    for schema, read in ((FIRST, {"id": 1, "was": "x"}), (READER, {"id": 1, "kind": "old"})):
        asked.add("orders-value", schema)
        asked.add("out-value", {**schema, "name": "Out"})
        kafka_io.write_records(
            project.broker.bootstrap, project.source, [Record(0, b"k", value, (), NOW_MS)]
        )
        done = project.run_warm()
        assert done.returncode == 0, done.stderr
        wanted.append(read)
        rows = kafka_io.read(project.broker.bootstrap, project.target)
        assert [written(row.value, asked) for row in rows] == wanted
        assert [row.key for row in rows] == [framed(key, KEY, {"id": 1})] * len(wanted)
        newest = asked.subjects["out-value"][-1]
        assert (rows[-1].value or b"")[1:5] == newest.to_bytes(4, "big")


def test_without_a_registry_in_the_profile_nothing_is_begun(project: Project) -> None:
    declare(project)
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    done = project.run_warm()
    assert done.returncode == 2
    assert "eos: [schema_registry_missing]" in done.stderr
    assert "('orders-value', 'written-value')" in done.stderr
    assert "registry: {url: ...}" in done.stderr
