"""Sinks of a pipeline file: what they say, what is wrong with others, what is planned of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.cli.lint import find
from eos.config.load import load_pipeline, load_profile
from eos.errors import UsageError
from eos.kafka.compression_type import Codec
from eos.plan.plan import Plan, plan

TEXT = """\
version: 1
name: orders
source: {kafka: {topic: orders}}
sink:
  kafka:
"""


def written(folder: Path, *sinks: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT + "".join(f"    - {sink}\n" for sink in sinks))
    return path


def planned(folder: Path, *sinks: str) -> Plan:
    pipeline = load_pipeline(written(folder, *sinks), {})
    return plan(pipeline, load_profile(None, folder, {}), ("a:1",), ())


def test_a_sink_that_says_nothing_passes_on_what_came(tmp_path):
    found = planned(tmp_path, "topic: out")
    (sink,) = found.sinks
    assert (sink.key_column, sink.value_column, sink.headers_column) == ("key", "value", "headers")
    assert sink.where_column is sink.topic_column is None
    assert found.outputs.columns == {}
    assert not found.outputs.is_filtered


def test_what_several_sinks_want_is_computed_once(tmp_path):
    found = planned(
        tmp_path,
        "{topic: out, key: id, value: json}",
        "{topic: large, key: id, value: json, where: gross > 10, compression: zstd}",
        "{topic: some, key: string, value: {json: [id, gross]}, headers: {kind: \"'x'\", at: day}}",
    )
    columns = found.outputs.columns
    one, two, three = found.sinks
    assert (one.key_column, one.value_column) == (two.key_column, two.value_column)
    assert three.value_column != one.value_column
    assert two.codec is Codec.ZSTD
    assert columns[one.key_column].texts == ("id",)
    assert columns[one.value_column].texts == ()
    assert columns[two.where_column].texts == ("gross > 10",)
    assert columns[two.where_column].place == "sink 2: where"
    assert columns[three.key_column].texts == ("`key`",)
    assert columns[three.value_column].texts == ("id", "gross")
    assert columns[three.headers_column].texts == ("kind", "'x'", "at", "day")
    assert len(columns) == 6
    assert not found.outputs.is_filtered  # the first takes every row
    both = planned(tmp_path, "{topic: a, where: x}", "{topic: b, where: x}")
    assert both.outputs.is_filtered
    assert len(both.outputs.columns) == 1


def test_a_topic_by_column_creates_and_looks_up_all_that_are_listed(tmp_path):
    found = planned(
        tmp_path,
        "{topic: {column: place, topics: [eu, us]}, create: {partitions: 3}}",
        "{topic: out}",
    )
    assert found.sink_topics == ("eu", "us", "out")
    assert {name: new.partitions for name, new in found.created_topics.items()} == {
        "eu": 3,
        "us": 3,
    }
    assert found.sinks[0].topics == ("eu", "us")
    assert found.sink_columns == ("place",)


@pytest.mark.parametrize(
    ("sink", "column", "message"),
    [
        ("{topic: 7}", 15, "expected a topic name, or a mapping with the keys column and topics"),
        ("{topic: a b}", 15, "expected a topic name (letters"),
        ("{topic: {column: a, topics: []}}", 35, "expected at least one entry"),
        ("{topic: {column: a, topcs: [b], topics: [b]}}", 27, "did you mean `topics`?"),
        ("{topic: a, key: json}", 23, "expected a key of chosen columns, such as `{json: [order"),
        ("{topic: a, key: 7}", 23, "expected string, an SQL expression, or a mapping with the key"),
        ("{topic: a, value: {json: []}}", 32, "expected at least one entry"),
        ("{topic: a, value: ''}", 25, "expected a text that is not empty"),
        ("{topic: a, valu: json}", 18, "unknown key `valu`; did you mean `value`?"),
        ("{topic: a, headers: {x: 1}}", 31, "expected a text, got `1`; put quotes around it"),
        ("{topic: {column: a, topics: [orders]}}", 3, "`orders` is a source topic"),
    ],
)
def test_what_is_no_sink_is_told_at_its_place(tmp_path, sink, column, message):
    with pytest.raises(UsageError) as caught:
        load_pipeline(written(tmp_path, sink), {})
    (found,) = caught.value.fields["problems"]
    assert message in found.message
    assert (found.line, found.column) == ((5, 3) if column == 3 else (6, column))


def test_a_topic_is_the_target_of_one_sink(tmp_path):
    with pytest.raises(UsageError, match="`b` appears twice"):
        load_pipeline(written(tmp_path, "topic: {column: a, topics: [b]}", "topic: b"), {})


def test_lint_warns_of_what_a_redo_would_not_repeat_in_a_sink(tmp_path):
    path = written(
        tmp_path, "{topic: a, key: uuid(), where: rand() < 0.5, headers: {at: now()}, value: json}"
    )
    found = sorted(find(path))
    assert [(p.line, p.column, p.severity) for p in found] == [
        (6, 23, "warning"),
        (6, 38, "warning"),
        (6, 66, "warning"),
    ]
