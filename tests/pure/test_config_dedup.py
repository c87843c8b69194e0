"""What `dedup:` may say, and what is told of what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.errors import raises
from support.verbs import replay

from eos.config.load import load_pipeline
from eos.config.model import ProfileFile
from eos.errors import UsageError
from eos.plan.plan import plan
from eos.plan.tree import stages
from eos.producers.state import UNWRAPPED, Verdict
from eos.spark.dedup_run import dedup_of

PIPELINE = """\
version: 1
name: p
source:
  kafka: {{topic: a{kafka}}}
  value: {{json: "who STRING, n BIGINT"{read}}}
dedup:
  producer: {{id: {id}, epoch: header(e), sequence: {sequence}{more}}}
{keys}
sink: {{kafka: {{topic: b, value: json}}{dead}}}
"""
FINE = {"kafka": "", "read": "", "id": "who", "sequence": "value(m.n)", "more": "", "keys": ""}
FINE |= {"dead": ""}


def written(folder: Path, **changes: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(**{**FINE, **changes}))
    return path


def planned(folder: Path, **changes: str):
    return plan(load_pipeline(written(folder, **changes)), ProfileFile(), (), ())


def test_places_and_defaults(tmp_path):
    found = planned(tmp_path).dedup
    assert found.reading == ("value(who)", "header(e)", "value(m.n)")
    policy = found.policy
    assert policy.refused == {"gap", "late", "unstamped"}
    assert policy.rules.accepts == {Verdict.UNKNOWN_PRODUCER}
    assert (policy.rules.sequences, policy.forget_ms) == (UNWRAPPED, 7 * 86_400_000)


def test_answers(tmp_path):
    keys = "  on_gap: accept\n  on_late: accept\n  on_unknown: fail\n  on_unstamped: accept\n"
    found = planned(tmp_path, keys=keys + "  forget_after: 1 hour", more=", wraps_at: 2147483648")
    policy = found.dedup.policy
    assert (policy.refused, policy.rules.accepts) == ({"unknown_producer"}, {Verdict.GAP})
    assert (policy.rules.sequences, policy.forget_ms) == (2**31, 3_600_000)
    assert policy.accepting_gaps() == policy


def test_spread_over_partitions_and_dead_letters(tmp_path):
    found = planned(tmp_path, keys="  scope: producer\n  on_unknown: fail")
    assert (found.dedup.policy.window, found.dedup.policy.rules.is_ordered) == (100_000, False)
    by, window, ends = found.dedup.facts
    assert by == "by value(who), header(e), value(m.n)"
    assert "spread over partitions, each at most 100,000 above" in window
    assert ends == "ends the run: gap, late, unknown_producer, unstamped"
    found = planned(tmp_path, keys="  scope: producer", more=", wraps_at: 65536")
    assert found.dedup.policy.window == 16_384
    keys = "  on_gap: dead_letter\n  on_late: dead_letter\n  on_unstamped: dead_letter\n"
    found = planned(tmp_path, keys=keys + "  verdict: how", dead=", dead_letter: c")
    policy = found.dedup.policy
    assert (policy.refused, policy.dead) == (frozenset(), {"gap", "late", "unstamped"})
    assert Verdict.GAP not in policy.rules.accepts
    accepting = policy.accepting_gaps()
    assert accepting.dead == {"late", "unstamped"}
    assert Verdict.GAP in accepting.rules.accepts
    assert (found.dedup.verdict, found.decode.carries) == ("how", ("how",))
    told = list(found.dedup.facts)[1:]
    assert told[0] == "to the dead letters: gap, late, unstamped"
    assert told[1] == "column how has the verdict of each record"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "whom"}, "the value has no column `whom` (it has `who`, `n`)"),
        ({"read": ", as: v"}, "the value has no column `who` (it has none)"),
        ({"id": "header(a b)"}, "header(NAME), value(PATH), key or the name of a column"),
        ({"sequence": "value(a..b)"}, "header(NAME), value(PATH), key"),
        ({"kafka": ", min_partitions: 4"}, "expected no `min_partitions` with `dedup`"),
        ({"keys": "  on_unknown: dead_letter"}, "expected fail or accept, got `dead_letter`"),
        (
            {"keys": "  on_gap: dead_letter"},
            "`dead_letter: TOPIC` in the sink: `dedup` has",
        ),
        ({"keys": "  scope: topic"}, "expected partition or producer, got `topic`"),
        ({"keys": "  window: 100"}, "expected `scope: producer` with `window`"),
        (
            {"keys": "  scope: producer\n  window: 16385", "more": ", wraps_at: 65536"},
            "at most a quarter of `wraps_at`, which is 16384",
        ),
        ({"keys": "  verdict: Offset"}, "a new column name as `dedup.verdict`"),
        ({"keys": "  verdict: who"}, "the source has a column `who`"),
        (
            {"keys": "expect: [{name: Dedup_Gap, rule: n > 0}]"},
            "a rule name other than `dedup_gap`",
        ),
        ({"keys": "  on_gaps: fail"}, "did you mean `on_gap`?"),
        ({"more": ", wraps_at: 10"}, "at least 65536, got `10`"),
        ({"more": f", wraps_at: {2**63}"}, "remove `wraps_at`: a million records a second"),
        ({"more": f", wraps_at: {2**32 + 1}"}, "expected a `wraps_at` of at most 4294967296"),
        ({"more": ", wraps_at: 1.5"}, "expected a whole number, got `1.5`"),
        ({"keys": "  forget_after: 30 days"}, "24 days"),
    ],
)
def test_what_can_not_be_meant(tmp_path, changes, words):
    with pytest.raises(UsageError) as found:
        load_pipeline(written(tmp_path, **changes))
    (problem,) = found.value.fields["problems"]
    assert words in problem.message, problem


AVRO = '{"type": "record", "name": "P", "fields": [{"name": "who", "type": "string"}]}'
CODED = {
    "Avro": (
        f"{{avro: '{AVRO}'}}",
        "{avro: {file: p.avsc}}",
        "{avro: {subject: p-value}}",
        "{debezium: {avro: {subject: p-value}}}",
    ),
    "Protobuf": ("{protobuf: {file: p.proto, message: P}}",),
    "JSON after a schema id": ('{json: "who STRING, n BIGINT", subject: p-value}',),
}


@pytest.mark.parametrize(
    ("coding", "value"), [(what, each) for what, values in CODED.items() for each in values]
)
@pytest.mark.parametrize("field", ["who", "value(who)"])
def test_a_stamp_in_a_value_that_is_no_json_is_refused(tmp_path, coding, value, field):
    """Whatever names the value has: its bytes are not read for a stamp, and each record would be
    unstamped."""
    path = written(tmp_path, id=field, sequence="header(n)")
    text = path.read_text().replace('{json: "who STRING, n BIGINT"}', value)
    path.write_text(text)
    with pytest.raises(UsageError) as found:
        load_pipeline(path)
    (problem,) = found.value.fields["problems"]
    wanted = f"`dedup.producer.id`: `{field}` is in the value, which is {coding}"
    assert wanted in problem.message, problem
    assert "header" in problem.message
    path.write_text(text.replace(f"id: {field}", "id: key"))
    assert load_pipeline(path).producers.producer.id == "key"


def test_a_state_root_elsewhere_is_refused_and_a_replay_too(tmp_path):
    path = written(tmp_path)
    profile = ProfileFile.model_validate({"state": {"root": "hdfs://name:8020/eos"}})
    made = plan(load_pipeline(path), profile, (), ())
    with raises("dedup_state_remote"):
        dedup_of(made, None)
    with raises("replay_dedup_rule", UsageError):
        replay([str(path), "--rule", "malformed"])


def test_the_plan_names_all_rules_that_fill_the_dead_letter_topic(tmp_path):
    made = planned(
        tmp_path,
        keys="  on_unstamped: dead_letter\n  on_gap: dead_letter",
        dead=", dead_letter: c",
    )
    (stage,) = [each for each in stages(made) if each.name == "dead letters"]
    assert "rejected by: dedup_gap, dedup_unstamped" in stage.facts
