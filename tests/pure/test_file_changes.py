"""The settings of a pipeline file that the ledger keeps, and what a restart does about changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.simulated_broker.wire import stored_at

from eos.config.load import load_pipeline
from eos.errors import PromiseBrokenError, UsageError
from eos.inspect.file_changes import changes, effects
from eos.kafka.api import Identity
from eos.ledger.decoder import decoded
from eos.ledger.record import Position, encoded, stamped
from eos.plan.declared import BYTES_MAX, declared, folded, is_folded

FILE = """
version: 1
name: orders
source:
  kafka: {topics: [a, b], start: earliest, max_records: 1000}
  value: {json: "id BIGINT, state STRING"}
  on_error: dead_letter
expect:
  - {name: known, rule: "id IS NULL OR id > 0", on_error: drop}
transform:
  - {sql: "SELECT * FROM input"}
  - {python: "m:f", with: {token: 12345678}}
trigger: {every: 5 seconds}
sink:
  kafka:
    - {topic: all, create: {partitions: 2}}
    - {topic: large, where: "id > 10", headers: {secret: "'s3cret'"}}
  delta: {path: lake/orders, mode: merge, keys: [id]}
  dead_letter: {topic: dlq}
"""


def settings(tmp_path: Path, *replaced: tuple[str, str]) -> dict[str, str]:
    text = FILE
    for old, new in replaced:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "pipeline.yaml").write_text(text)
    return dict(declared(load_pipeline(tmp_path / "pipeline.yaml")))


def texts(tmp_path: Path, *replaced: tuple[str, str]) -> list[str]:
    return [str(each) for each in changes(settings(tmp_path), settings(tmp_path, *replaced))]


def test_only_names_numbers_and_words_are_recorded_as_text(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert found["source.kafka.topics"] == '["a", "b"]'
    assert found["source.kafka.max_records"] == "1000"
    assert found["sink.kafka[all].create.partitions"] == "2"
    assert found["sink.delta[orders].keys"] == '["id"]'
    text = json.dumps(found)
    for private in ("SELECT", "12345678", "token", "s3cret", "id > 10", "BIGINT", "m:f"):
        assert private not in text, private
    for key in ("name", "version", "trigger.every", "output_mode"):  # not compared, or not set
        assert key not in found


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        (("topics: [a, b]", "topics: [a]"), ['source.kafka.topics: ["a", "b"] -> ["a"]']),
        (("topics: [a, b]", "topic: a"), ["source.kafka.topic", "source.kafka.topics"]),
        (("token: 12345678", "token: 1"), ["transform[2].with: changed"]),
        (("id > 10", "id > 11"), ["sink.kafka[large].where: changed"]),
        ((", create: {partitions: 2}", ""), ["sink.kafka[all].create.partitions: removed (2)"]),
        (("topic: large", "topic: big"), ["sink.kafka[big]"] * 3 + ["sink.kafka[large]"] * 3),
        (("dead_letter: {topic: dlq}", "dead_letter: {topic: d}"), ['"dlq" -> "d"']),
        (("version: 1", "version: 1\noutput_mode: append"), ['output_mode: added ("append")']),
    ],
)
def test_a_change_names_the_key_and_both_values(tmp_path: Path, replaced, said) -> None:
    found = texts(tmp_path, replaced)
    assert len(found) == len(said), found
    assert all(wanted in each for wanted, each in zip(said, found, strict=True)), found


def test_a_file_that_says_the_same_in_other_words_has_no_changes(tmp_path: Path) -> None:
    assert texts(tmp_path) == []
    assert texts(tmp_path, ("topics: [a, b]", 'topics: ["a",\n b]')) == []
    delta = "{path: lake/orders, mode: merge, keys: [id]}"
    assert texts(tmp_path, (delta, f"[{delta}]")) == []


def test_a_large_file_is_recorded_by_digests_of_its_parts(tmp_path: Path) -> None:
    few = settings(tmp_path)
    rules = "".join(f'  - {{name: r{n}, rule: "id > {n}"}}\n' for n in range(200))
    many = settings(tmp_path, ("expect:\n", f"expect:\n{rules}"))
    assert is_folded(many)
    assert not is_folded(few)
    assert len(json.dumps(many)) < BYTES_MAX
    assert [str(each) for each in changes(few, many)] == ["expect: changed"]
    assert [str(each) for each in changes(many, few)] == ["expect: changed"]
    assert changes(many, many) == []
    assert folded(many) == many


def test_a_record_has_the_settings_and_older_records_have_none(tmp_path: Path) -> None:
    found, me = settings(tmp_path), Identity(7, 1)
    owner = {"deployment": "d", "host": "h", "process": 1}
    for given, read in ((found, found), (None, None)):
        blob = encoded("p", owner, "start", Position({}, {}), identity=me, declared=given)
        (stored,) = stored_at(stamped(blob, me), 4)
        assert decoded("p", "ledger", stored).declared == read


LEFT_OUT = PromiseBrokenError("left_out", "m", hint="h", topic="b")
TRUNCATED = PromiseBrokenError("truncated", "m", hint="h")
NO_TARGET = UsageError("target_topic_missing", "m", hint="h")


def verdicts(tmp_path: Path, *replaced, errors=(), keeps_state=False):
    before, now = settings(tmp_path), settings(tmp_path, *replaced)
    found, others = effects(changes(before, now), before, now, errors, keeps_state=keeps_state)
    return {each.change.path: each.verdict for each in found}, [each.code for each in others]


def test_an_error_belongs_to_the_change_that_can_cause_it(tmp_path: Path) -> None:
    found, others = verdicts(
        tmp_path,
        ("topics: [a, b]", "topics: [a]"),
        ("start: earliest", "start: latest"),
        ("topic: all", "topic: every"),
        errors=[LEFT_OUT, TRUNCATED, NO_TARGET],
    )
    assert found["source.kafka.topics"] == "stops"
    assert found["source.kafka.start"] == "may change"
    assert found["sink.kafka[every].topic"] == "stops"
    assert found["sink.kafka[every].create.partitions"] == "may change"
    assert others == ["truncated"]


def test_without_such_a_change_an_error_stands_alone(tmp_path: Path) -> None:
    found, others = verdicts(tmp_path, ("max_records: 1000", "max_records: 2"), errors=[LEFT_OUT])
    assert found == {"source.kafka.max_records": "may change"}
    assert others == ["left_out"]


@pytest.mark.parametrize("keeps_state", [True, False])
def test_steps_of_a_pipeline_that_keeps_state_are_compared_by_spark(
    tmp_path: Path, keeps_state
) -> None:
    changed = ("SELECT *", "SELECT id"), ("max_records: 1000", "max_records: 2")
    found, _ = verdicts(tmp_path, *changed, keeps_state=keeps_state)
    assert found == {
        "source.kafka.max_records": "may change",
        "transform[1].sql": "Spark decides" if keeps_state else "may change",
    }


DEDUP = 'version: 1\ndedup: {producer: {id: "header(i)", epoch: "header(e)", sequence: "header(s)"}'


@pytest.mark.parametrize(("is_added", "word"), [(True, "unknown"), (False, "dropped")])
def test_dedup_that_is_added_or_removed_says_what_is_known(tmp_path: Path, is_added, word) -> None:
    without, with_it = settings(tmp_path), settings(tmp_path, ("version: 1", f"{DEDUP}}}"))
    before, now = (without, with_it) if is_added else (with_it, without)
    found, _ = effects(changes(before, now), before, now, (), keeps_state=False)
    assert found
    assert all(word in each.text for each in found)


def test_other_rules_of_dedup_may_change(tmp_path: Path) -> None:
    before = settings(tmp_path, ("version: 1", f"{DEDUP}, on_gap: fail}}"))
    now = settings(tmp_path, ("version: 1", f"{DEDUP}, on_gap: accept}}"))
    (found,), _ = effects(changes(before, now), before, now, (), keeps_state=False)
    assert (found.change.path, found.verdict) == ("dedup.on_gap", "may change")
