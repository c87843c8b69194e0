"""Schemas that are in the registry alone: what a file may say, what a start reads and writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kafka.schemas import FakeRegistry, registry

from eos.cli.lint import find, lint
from eos.config.load import load_pipeline, load_profile
from eos.config.registry import Registry
from eos.deadline import Deadline
from eos.errors import UsageError
from eos.formats.registry_client import RegistryClient
from eos.plan.plan import Plan, plan
from eos.plan.tree import stages
from eos.startup.registered_schemas import with_latest, with_registry

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}],
}
NEWER = {**ORDER, "fields": [*ORDER["fields"], {"name": "later", "type": "int", "default": 0}]}


@pytest.fixture
def asked() -> Iterator[FakeRegistry]:
    with registry() as made:
        yield made


def written(folder: Path, *, sink: str = "kafka: {topic: out}", more: str = "") -> Path:
    path = folder / "pipelines" / "one" / "pipeline.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"""\
version: 1
name: one
source: {{kafka: {{topic: orders}}, value: {{avro: {{subject: s}}}}{more}}}
expect: [{{name: known, rule: keys > 0}}]
sink: {{{sink}}}
"""
    )
    return path


def planned(folder: Path, **more: str) -> Plan:
    pipeline = load_pipeline(written(folder, **more), {})
    return plan(pipeline, load_profile(None, folder, {}), ("a:1",), ())


def test_the_columns_are_those_of_the_latest_schema(asked: FakeRegistry, tmp_path: Path) -> None:
    before = planned(tmp_path)
    (source, *_) = stages(before)
    assert "value as avro: the latest schema of s, read at startup" in source.facts
    old, new = asked.add("s", ORDER), asked.add("s", NEWER)
    for ask in (with_registry, with_latest):
        value = ask(before, Registry(url=asked.url)).decode.value
        assert value.columns == ("id", "later")
        assert json.loads(value.schema) == NEWER
        assert list(value.written_by) == [old, new]


def test_what_was_deleted_and_came_back_is_the_newest(asked: FakeRegistry) -> None:
    first, second = asked.add("s", ORDER), asked.add("s", NEWER)
    asked.subjects["s"].append(first)
    found = RegistryClient(Registry(url=asked.url)).versions("s", Deadline.after_ms(86_400_000))
    assert list(found) == [second, first]


def test_nobody_is_asked_where_the_file_has_the_schema(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("subject: s", "subject: s, file: order.avsc"))
    (path.parent / "order.avsc").write_text(json.dumps(ORDER))
    pipeline = load_pipeline(path, {})
    made = plan(pipeline, load_profile(None, tmp_path, {}), ("a:1",), ())
    assert with_latest(made, None) is made


@pytest.mark.parametrize(
    ("schema", "more", "told"),
    [
        ('"string"', "", "latest schema of 's' in the schema registry, id 1000: expected the Avro"),
        (json.dumps(ORDER).replace('"id"', '"Offset"'), "", "got `Offset` (Kafka's own column)"),
        (json.dumps(ORDER), ', key: {json: "id INT"}', "got `id` (a column of the key)"),
    ],
)
def test_a_latest_schema_that_can_not_serve_ends_the_start(
    asked: FakeRegistry, tmp_path: Path, schema: str, more: str, told: str
) -> None:
    asked.add("s", schema)
    with pytest.raises(UsageError) as refused:
        with_registry(planned(tmp_path, more=more), Registry(url=asked.url))
    assert told in refused.value.message


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("kafka: {topic: out}", ""),
        ("kafka: {topic: out, value: {avro: {register: true}}}", "expected `file`, or the `subj"),
        (
            "kafka: {topic: out, value: {avro: {subject: t, register: true}}}",
            "expected `file` with",
        ),
        ("kafka: {topic: out}, delta: {path: lake/x}", "expected `file` with the source's"),
    ],
)
def test_what_changes_with_the_registry_is_refused_where_it_must_not(
    tmp_path: Path, sink: str, told: str
) -> None:
    """And a rule's words may be columns that nobody knows yet: `keys` is no `key` misspelt."""
    problems = [each for each in find(written(tmp_path, sink=sink)) if each.severity != "note"]
    found = [problem.message for problem in problems]
    assert len(found) == bool(told)
    assert all(message.startswith(told) for message in found)


SINKS = """kafka: [
  {topic: out, key: {avro: {subject: t}}, value: {avro: {subject: t}}},
  {topic: more, value: {avro: {subject: u}}}]"""
PLACE = {**ORDER, "name": "Place"}
PLACED = {**ORDER, "fields": [*ORDER["fields"], {"name": "at", "type": "Place"}]}


def test_a_sink_without_a_file_writes_by_the_latest_schema(
    asked: FakeRegistry, tmp_path: Path
) -> None:
    before = planned(tmp_path, sink=SINKS)
    told = [
        fact for stage in stages(before) for fact in stage.facts if "the latest schema of" in fact
    ]
    assert told == [
        "value as avro: the latest schema of s, read at startup",
        "key avro: the latest schema of t, read at startup",
        "value avro: the latest schema of t, read at startup",
        "value avro: the latest schema of u, read at startup",
    ]
    asked.add("s", ORDER)
    asked.add("place", PLACE)
    number, other = asked.add("t", NEWER), asked.add("u", PLACED, ("place", 1))
    for ask in (with_registry, with_latest):
        asked.asked.clear()
        made = ask(before, Registry(url=asked.url)).outputs.columns.values()
        assert [each.schema_id for each in made] == [number, number, other]
        assert [json.loads(each.texts[0]) for each in made][:2] == [NEWER, NEWER]
        placed = json.loads([*made][2].texts[0])["fields"][1]["type"]
        assert placed == {**PLACE, "namespace": ""}
        assert asked.asked.count("GET /subjects/t/versions/latest") == 1
        assert all(line.startswith("GET ") for line in asked.asked)


def test_what_a_sink_writes_by_stays_while_others_register(
    asked: FakeRegistry, tmp_path: Path
) -> None:
    """With `looks`, as `eos plan --check`, and for a run: the same, and nothing is registered."""
    asked.add("s", ORDER)
    number = asked.add("t", ORDER)
    asked.add("u", ORDER)
    before = planned(tmp_path, sink=SINKS)
    for looks in (True, False):
        made = with_registry(before, Registry(url=asked.url), is_preview=looks)
        asked.add("t", {**NEWER, "doc": f"{looks}"})
        columns = [*made.outputs.columns.values()]
        assert columns[0].schema_id == number
        assert not any(each.is_elsewhere for each in columns)
        number = asked.subjects["t"][-1]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (None, "has no subject 't'"),
        ('"string"', "latest schema of 't' in the schema registry, id 1002: expected the Avro sch"),
    ],
)
def test_a_sinks_latest_schema_that_can_not_serve_ends_the_start(
    asked: FakeRegistry, tmp_path: Path, schema: str | None, told: str
) -> None:
    asked.add("s", ORDER)
    asked.add("u", NEWER)
    if schema:
        asked.add("t", schema)
    with pytest.raises(UsageError) as refused:
        with_registry(planned(tmp_path, sink=SINKS), Registry(url=asked.url))
    assert told in refused.value.message


def test_lint_says_which_schemas_it_did_not_see(tmp_path: Path) -> None:
    found = [*find(written(tmp_path, sink=SINKS))]
    assert {each.severity for each in found} == {"note"}
    assert [each.message.split("`")[1] for each in found] == ["s", "t", "t", "u"]
    assert [each.line for each in found] == [3, 6, 6, 7]
    assert lint([tmp_path / "pipelines" / "one"], as_json=False) == 0
