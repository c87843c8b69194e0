"""What a pipeline file says of records that are not taken, and what is wrong with others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.kafka.schemas import add, descriptor_file, shop

from eos.cli.lint import find
from eos.config.load import load_pipeline, load_profile
from eos.errors import UsageError
from eos.kafka.compression_type import Codec
from eos.plan.plan import DeadLetterSink, plan
from eos.read.decode import RecordRule
from eos.spark.dead_letters import Origin, origin

TEXT = """\
version: 1
name: orders
source:
  kafka: {{topic: orders}}
  value: {{json: "id BIGINT, amount DOUBLE, lines ARRAY<INT>"}}
  {source}
expect: {expect}
sink: {{kafka: {{topic: out}}, {sink}}}
"""


def written(
    folder: Path, expect: str = "[]", sink: str = "dead_letter: dlq", source: str = ""
) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT.format(expect=expect, sink=sink, source=source))
    return path


def test_answers_reach_the_plan_and_the_topic_is_a_target(tmp_path):
    rules = "[{name: paid, rule: amount > 0, on_error: dead_letter}, {name: known, rule: id > 0}]"
    dead = "dead_letter: {topic: dlq, compression: zstd, create: {partitions: 3}}"
    path = written(tmp_path, rules, dead, "on_error: dead_letter")
    found = plan(load_pipeline(path, {}), load_profile(None, tmp_path, {}), ("a:1",), ())
    assert found.decode.on_error == "dead_letter"
    assert found.decode.rules == (
        RecordRule("paid", "amount > 0", "dead_letter"),
        RecordRule("known", "id > 0", "fail"),
    )
    assert found.dead_letters == DeadLetterSink("dlq", Codec.ZSTD)
    assert (found.row_topics, found.sink_topics) == (("out",), ("out", "dlq"))
    assert found.created_topics["dlq"].partitions == 3
    assert list(find(path)) == []


def test_a_topic_alone_is_enough_and_none_is_none(tmp_path):
    of = load_profile(None, tmp_path, {})
    found = plan(load_pipeline(written(tmp_path), {}), of, ("a:1",), ())
    assert found.dead_letters == DeadLetterSink("dlq")
    assert not found.created_topics
    none = written(tmp_path, sink="")
    assert plan(load_pipeline(none, {}), of, ("a:1",), ()).dead_letters is None


@pytest.mark.parametrize(
    ("expect", "sink", "source", "place", "message"),
    [
        ("[{name: a b, rule: id > 0}]", "", "", (7, 17), "expected a name of at most 50 letters"),
        ("[{name: Malformed, rule: id > 0}]", "", "", (7, 17), "expected a name other than"),
        ("[{name: a, rule: id > 0}, {name: A, rule: id > 1}]", "", "", (7, 9), "`a` appears tw"),
        ("[{name: a, rule: ''}]", "", "", (7, 26), "expected a text that is not empty"),
        ("[{name: a, rule: (id > 0}]", "", "", (7, 26), "expected `)` in an SQL condition"),
        ("[{name: a, rule: where id > 0}]", "", "", (7, 26), "without `WHERE`"),
        ("[{name: a, rul: id > 0, rule: id > 0}]", "", "", (7, 20), "did you mean `rule`?"),
        ("[{name: a, rule: id > 0, on_error: dead_leter}]", "", "", (7, 44), "mean `dead_letter`?"),
        ("[{name: a, rule: zzz > 0, on_error: drop}]", "", "", None, None),
        ("[{name: a, rule: id > 0, on_error: dead_letter}]", "", "", (8, 7), "rule `a` has"),
        ("[]", "", "on_error: dead_letter", (8, 7), "the source has `on_error: dead_letter`"),
        ("[]", "dead_letter: a b", "", (8, 42), "expected a topic name"),
        ("[]", "dead_letter: {topc: a, topic: b}", "", (8, 43), "did you mean `topic`?"),
        ("[]", "dead_letter: out", "", (8, 7), "`out` appears twice"),
        ("[]", "dead_letter: orders", "", (8, 7), "`orders` is a source topic"),
        (
            "[{name: a, rule: rand() < 1}]",
            "",
            "",
            (7, 26),
            "`rand` in a rule returns another value",
        ),
        ("[{name: a, rule: amuont > 0}]", "", "", (7, 26), "did you mean `amount`?"),
        ("[{name: a, rule: 'exists(lines, amunt -> amunt > 0)'}]", "", "", None, None),
        ("[{name: a, rule: 'ofset > 0'}]", "", "", (7, 26), "did you mean `offset`?"),
    ],
)
def test_what_can_not_be_meant_is_told_at_its_place(tmp_path, expect, sink, source, place, message):
    found = list(find(written(tmp_path, expect, sink, source)))
    if place is None:
        assert found == []
        return
    (problem,) = found
    assert message in problem.message
    assert (problem.line, problem.column) == place
    assert problem.severity == "error"


def test_no_pipeline_has_a_name_that_replays_have(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("name: orders", "name: a.replay.paid"))
    with pytest.raises(UsageError, match=r"expected a name without `.replay.`"):
        load_pipeline(path, {})


OURS = (
    ("eos.pipeline", b"orders"),
    ("eos.topic", b"in"),
    ("eos.partition", b"3"),
    ("eos.offset", b"17"),
    ("eos.timestamp", b"1795255200000"),
    ("eos.rule", b"paid"),
    ("eos.error", b"not true: amount > 0"),
)
ORIGIN = Origin("orders", ("in", 3), 17, 1795255200000, "paid", "not true: amount > 0", ())


def test_headers_tell_where_a_dead_letter_came_from():
    own = (("trace", b"\xff"), ("none", None))
    assert origin((*own, *OURS)) == ORIGIN._replace(headers=own)
    # Of somebody who copies dead letters about: the last block is ours.
    assert origin((*OURS, *own, *OURS)) == ORIGIN._replace(headers=(*OURS, *own))


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("trace", b"x"),),
        OURS[1:],
        OURS[:-1],
        (*OURS[:2], ("eos.partition", b"x")),
        (*OURS, ("eos.partition", b"-1")),
        (*OURS, ("eos.offset", b"-17")),
        (*OURS, ("eos.timestamp", b"%d" % 2**63)),
    ],
)
def test_what_is_no_dead_letter_is_told_apart(headers):
    assert origin(headers) is None


def test_lint_tells_of_schemas_whose_files_are_not_there_or_none(tmp_path):
    path = written(tmp_path)
    text = path.read_text().replace("{topic: out}", "{topic: out, value: {avro: {file: out.avsc}}}")
    text = text.replace(
        '{json: "id BIGINT, amount DOUBLE, lines ARRAY<INT>"}', "{avro: {file: in.avsc}}"
    )
    path.write_text(text)
    source, sink = sorted(find(path))
    assert (source.line, source.column) == (4, 3)
    assert "in.avsc can't be read: No such file" in source.message
    assert (sink.line, sink.column) == (8, 15)
    assert "out.avsc can't be read: No such file" in sink.message
    fields = [{"name": "offset", "type": "long"}]
    record = json.dumps({"type": "record", "name": "A", "fields": fields})
    for name in ("in.avsc", "out.avsc"):
        (tmp_path / name).write_text(record)
    (clash,) = find(path)
    assert "`offset` (Kafka's own column)" in clash.message
    (tmp_path / "in.avsc").write_text('{"type": "long"}')
    (odd,) = find(path)
    assert "expected the Avro schema of a record" in odd.message


def test_lint_tells_of_descriptor_files_that_are_not_there_or_have_no_such_message(tmp_path):
    path = written(tmp_path)
    text = path.read_text().replace(
        "{topic: out}", "{topic: out, value: {protobuf: {file: shop.desc, message: shop.Smal}}}"
    )
    read = "{protobuf: {file: shop.desc, message: shop.Order}}"
    text = text.replace('{json: "id BIGINT, amount DOUBLE, lines ARRAY<INT>"}', read)
    path.write_text(text)
    source, sink = sorted(find(path))
    assert (source.line, source.column) == (4, 3)
    assert "shop.desc can't be read: No such file" in source.message
    assert (sink.line, sink.column) == (8, 15)
    (tmp_path / "shop.desc").write_bytes(descriptor_file(shop()))
    (sink,) = find(path)
    assert sink.message.endswith("`shop.Smal` is none; did you mean `shop.Small`?")
    path.write_text(text.replace("shop.Smal}", "shop.Small}").replace("shop.Order", "shop.Node"))
    (source,) = find(path)
    assert "expected a message that does not contain itself: `shop.Node` does" in source.message
    file = shop()
    add(file.message_type[1], 99, "int32", "offset")
    (tmp_path / "shop.desc").write_bytes(descriptor_file(file))
    path.write_text(text.replace("shop.Smal}", "shop.Small}"))
    (clash,) = find(path)
    assert "`offset` (Kafka's own column)" in clash.message
