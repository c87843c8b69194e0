"""What `dedup: {by: ...}` may say, and what is told of what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.config.load import load_pipeline
from eos.config.model import ProfileFile
from eos.errors import UsageError
from eos.plan.plan import plan
from eos.plan.tree import stages

PIPELINE = """\
version: 1
name: p
source:
  kafka: {topic: a}
  value: {json: "id BIGINT, n INT, at TIMESTAMP"}
dedup:
  by: [id, n]
  within: 1 day
  watermark: at
sink: {kafka: {topic: b, value: json}}
"""


def written(folder: Path, old: str = "", new: str = "") -> Path:
    path = folder / "pipeline.yaml"
    assert old in PIPELINE
    path.write_text(PIPELINE.replace(old, new) if old else PIPELINE)
    return path


def test_it_is_a_plan_of_its_own(tmp_path):
    made = plan(load_pipeline(written(tmp_path)), ProfileFile(), (), ())
    assert made.dedup is None
    found = made.decode.distinct
    assert (found.by, found.within_ms, found.watermark) == (("id", "n"), 86_400_000, "at")
    (rule,) = made.decode.rules  # what is null could not be told
    assert rule.condition == "`id` IS NOT NULL AND `n` IS NOT NULL AND `at` IS NOT NULL"
    told = {each.name: each for each in stages(made)}
    assert told["dedup"].facts[0] == "by id, n; within 86,400,000 ms of at"
    assert "expect" not in told


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("[id, n]", "[id, m]", 7, "it has no column `m` (it has `key`, `value`"),
        ("[id, n]", "[id, ID]", 7, "expected unique columns in `dedup.by`: `ID` appears twice"),
        ("[id, n]", "[]", 7, "expected at least one entry"),
        ("[id, n]", "[id-n]", 7, "letters, digits and `_`"),
        ("1 day", "1", 8, "expected a duration such as `10 minutes`"),
        ("1 day", "30 days", 8, "24 days"),
        (
            "watermark: at",
            "watermark: n",
            7,
            "of type TIMESTAMP as `dedup.watermark`: `n` has type INT",
        ),
        ("watermark: at", "watermark: key", 7, "`key` has type BINARY (Kafka's own"),
        (
            'TIMESTAMP"}',
            'TIMESTAMP"}\n  on_error: drop',
            8,
            "no `on_error: drop` with `dedup: {by: ...}`: in a stateful pipeline",
        ),
        (
            "dedup:",
            "expect: [{name: e, rule: n > 0, on_error: drop}]\ndedup:",
            8,
            "no `on_error: drop` with",
        ),
        ("watermark: at", "watermarks: at", 9, "did you mean `watermark`?"),
        ("  within: 1 day\n", "", 7, "expected key `within`, which is missing"),
        ("within: 1 day", "producer: {id: id, epoch: id, sequence: id}", 7, "not both"),
        ("at TIMESTAMP", "at TIMESTAMP_NTZ", 7, "`at` has type TIMESTAMP_NTZ"),
    ],
)
def test_what_can_not_be_meant(tmp_path, old, new, line, words):
    with pytest.raises(UsageError) as found:
        load_pipeline(written(tmp_path, old, new))
    told = [each for each in found.value.fields["problems"] if words in each.message]
    assert told, found.value.fields["problems"]
    assert told[0].line == line


def test_a_schema_in_a_file_of_its_own_is_left_to_spark(tmp_path):
    avro = written(tmp_path, '{json: "id BIGINT, n INT, at TIMESTAMP"}', "{avro: {file: a.avsc}}")
    assert load_pipeline(avro).distinct.by == ("id", "n")
    inside = '"id BIGINT, n INT, at TIMESTAMP", as: v}'
    with pytest.raises(UsageError, match="it has no column `id`"):
        load_pipeline(written(tmp_path, '"id BIGINT, n INT, at TIMESTAMP"}', inside))
