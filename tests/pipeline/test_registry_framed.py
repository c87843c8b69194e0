"""Protobuf and JSON with the ids of a schema registry, in and out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.errors import in_turn
from support.kafka import kafka_io
from support.kafka.kafka_io import NOW_MS, Record
from support.kafka.schemas import FakeRegistry, descriptor_file, message, registry, shop
from support.spark.project import Project
from support.spark.spark_session import local_spark

from eos.config.load import load_pipeline, load_profile
from eos.pipeline_tests.runner import run_case
from eos.plan.plan import plan
from eos.transform.functions import load

pytestmark = [pytest.mark.spark, pytest.mark.long]

ORDER, SMALL = (message(f"shop.{name}").type for name in ("Order", "Small"))
PROTO = 'syntax = "proto3"; package shop; message Line {} message Order { int64 id = 1; }'
# The same message in another place.
MOVED = PROTO.replace("message Line {}", "")
WRITTEN = 'syntax = "proto3"; package shop; message Other { message Inner {} } message Small {}'
PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{protobuf: {{file: shop.desc, message: shop.Order, subject: orders-value}}}}
  on_error: dead_letter
transform:
  - sql: SELECT *, price * 2 AS gross FROM input
sink:
  kafka:
    - topic: {target}
      value: {{protobuf: {{file: shop.desc, message: shop.Small, subject: small-value}}}}
      create: {{partitions: {partitions}}}
    - topic: {target}.json
      value: {{json: [id, gross], subject: json-value}}
      create: {{partitions: {partitions}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: 1}}}}
trigger: {{available_now: true}}
tests:
  - name: mappings and output are without ids
    input: [{{value: {{id: 7, price: 1.25}}}}]
    output:
      - {{topic: {target}, value: {{id: 7, gross: 2.5, kind: NEW}}}}
      - {{topic: {target}.json, value: {{id: 7, gross: 2.5}}}}
"""
OF_JSON = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}}}
  value: {{json: "id BIGINT NOT NULL, gross DOUBLE", subject: json-value}}
  on_error: dead_letter
sink:
  kafka: {{topic: {target}, value: json, create: {{partitions: 1}}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: 1}}}}
trigger: {{available_now: true}}
"""

OF_JSON_TEST = """
tests:
  - name: a mapping needs no id
    input: [{{value: {{id: 7, gross: 2.5}}}}, {{value: no object}}]
    output: [{{topic: {target}, value: {{id: 7, gross: 2.5}}}}, {{topic: {target}.dlq}}]
"""


@pytest.fixture
def asked() -> Iterator[FakeRegistry]:
    with registry() as made:
        yield made


def declare(project: Project, asked: FakeRegistry, text: str = PIPELINE) -> None:
    project.declare(1000, 1, text)
    folder = project.folder / "pipelines" / project.name
    (folder / "shop.desc").write_bytes(descriptor_file(shop()))
    project.profile.write_text(project.profile.read_text() + f'registry: {{url: "{asked.url}"}}\n')


def add(asked: FakeRegistry, subject: str, text: str, kind: str) -> int:
    number = asked.add(subject, text)
    asked.kinds[number] = kind
    return number


def order(number: int) -> bytes:
    made: bytes = ORDER(id=number, price=number / 4, kind=number % 2).SerializeToString()
    return made


def send(project: Project, topic: str, *values: bytes | None) -> None:
    records = [Record(0, b"k", value, (), NOW_MS) for value in values]
    kafka_io.write_records(project.broker.bootstrap, topic, records)


def values(project: Project, topic: str) -> list[bytes | None]:
    return [row.value for row in kafka_io.read(project.broker.bootstrap, topic)]


def before(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def test_messages_and_objects_are_behind_the_ids_of_a_registry(
    project: Project, asked: FakeRegistry
) -> None:
    declare(project, asked)
    first, second = (add(asked, "orders-value", each, "PROTOBUF") for each in (PROTO, MOVED))
    elsewhere = add(asked, "elsewhere-value", f"{PROTO} // of another subject", "PROTOBUF")
    strange = add(asked, "strange-value", '{"type": "object"}', "JSON")
    small = add(asked, "small-value", WRITTEN, "PROTOBUF")
    of_json = add(asked, "json-value", '{"type": "object", "title": "Small"}', "JSON")
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    odd = [
        order(4),  # no id
        before(first) + b"\x00" + order(5),  # the first message of the schema, a line
        before(77) + b"\x00" + order(6),
        before(strange) + b"\x00" + order(7),
        before(first) + b"\x02\x02" + b"\xff\xff",
    ]
    good = [
        before(first) + b"\x02\x02" + order(1),
        before(second) + b"\x00" + order(2),
        before(elsewhere) + b"\x02\x02" + order(3),
    ]
    send(project, project.source, *good, *odd, None)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert "the schema registry has new schemas" in done.stderr
    assert values(project, f"{project.target}.dlq") == odd
    dead = kafka_io.read_records(project.broker.bootstrap, f"{project.target}.dlq")
    assert [each.told["eos.error"].partition(":")[0] for each in dead] == [
        "the value has no schema id before it",
        "the value is no Protobuf message `shop.Order`",
        "the schema id 77 before the value has no Protobuf schema in the registry",
        f"the schema id {strange} before the value has no Protobuf schema in the registry",
        "the value is no Protobuf message `shop.Order`",
    ]
    frame = before(small) + b"\x02\x02"
    made = values(project, project.target)
    assert made[-1] is None  # a tombstone
    found = [SMALL.FromString(each[len(frame) :]) for each in made[:-1] if each]
    assert all(each and each.startswith(frame) for each in made[:-1])
    expected = [(n, n / 2, n % 2) for n in (1, 2, 3)]
    assert [(each.id, each.gross, each.kind) for each in found] == expected
    objects = values(project, f"{project.target}.json")
    assert objects[-1] is None
    assert [each[:5] for each in objects[:-1] if each] == [before(of_json)] * 3
    assert [json.loads(each[5:]) for each in objects[:-1] if each] == [
        {"id": n, "gross": n / 2} for n in (1, 2, 3)
    ]

    # The objects are read again, by another pipeline.
    (project.folder / "other").mkdir()
    other = Project.made(project.folder / "other", project.broker, project.warm)
    declare(other, asked, OF_JSON)
    kafka_io.create_topics(other.broker.bootstrap, 1, other.source)
    odd = [b'{"id": 4}', before(first) + b'{"id": 5}']
    odd += [before(of_json) + b'{"id": "x"}', before(of_json)]
    send(other, other.source, *objects, *odd)
    done = other.run_warm()
    assert done.returncode == 0, done.stderr
    assert values(other, f"{other.target}.dlq") == odd
    assert [each and json.loads(each) for each in values(other, other.target)] == [
        *({"id": n, "gross": n / 2} for n in (1, 2, 3)),
        None,
    ]


def test_a_sinks_message_must_be_in_the_latest_schema(
    project: Project, asked: FakeRegistry
) -> None:
    declare(project, asked)
    kafka_io.create_topics(project.broker.bootstrap, 1, project.source)
    add(asked, "orders-value", PROTO, "PROTOBUF")
    add(asked, "small-value", PROTO, "PROTOBUF")
    add(asked, "json-value", "{}", "JSON")
    done = project.run_warm()
    assert done.returncode == 2, done.stderr
    assert "eos: [registry_message_missing]" in done.stderr
    add(asked, "small-value", '{"type": "object"}', "JSON")
    done = project.run_warm()
    assert done.returncode == 2, done.stderr
    assert "is of type JSON; expected PROTOBUF" in done.stderr


@pytest.mark.parametrize("text", in_turn([PIPELINE, OF_JSON + OF_JSON_TEST], 1))
def test_a_files_tests_need_no_registry(project: Project, asked: FakeRegistry, text: str) -> None:
    declare(project, asked, text)
    pipeline = load_pipeline(project.folder / "pipelines" / project.name / "pipeline.yaml")
    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    profile = load_profile(str(project.profile), project.folder)
    with local_spark("framed") as session:
        outcome = run_case(session, plan(pipeline, profile, (), functions), pipeline.tests[0])
    assert outcome.is_passed, outcome
    assert asked.asked == []
