"""`eos plan --against-running` beside a real broker: its verdicts are those of the next start."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.copies.recovery import Output, Pipeline, run_verb, soon
from support.verbs import plan

from eos.errors import EosError, exit_code
from eos.inspect import next_start
from eos.inspect.check import Check
from eos.inspect.topic_check import topics
from eos.ledger import ledger
from eos.ledger.record import TableState
from eos.plan.plan import Plan
from eos.spark.dedup_run import state_versions
from eos.startup.acquire import ledger_of


@pytest.fixture(autouse=True)
def steps(pipeline: Pipeline) -> None:
    """Steps that `eos plan` can load; no Spark evaluates them here."""
    change(pipeline, '{python: "nowhere:to_be_found"}', "{sql: SELECT * FROM input}")


def file(pipeline: Pipeline) -> Path:
    return Path(pipeline.words[0]) / "pipeline.yaml"


def change(pipeline: Pipeline, old: str, new: str) -> None:
    text = file(pipeline).read_text()
    assert text.count(old) == 1, text
    file(pipeline).write_text(text.replace(old, new))


def compared(pipeline: Pipeline, *words: str) -> Output:
    return run_verb(plan, *pipeline.words, "--against-running", *words)


def verdicts(found: Output) -> dict[str, Any]:
    assert found.out, found
    return {each["path"]: each["verdict"] for each in found.json["changes"]}


def started(pipeline: Pipeline) -> int:
    """The exit code of a start."""
    try:
        with pipeline.running():
            return 0
    except EosError as error:
        return exit_code(error)


@pytest.mark.long
def test_nothing_changed_while_it_runs(pipeline: Pipeline) -> None:
    assert "no run yet" in compared(pipeline).out
    pipeline.fill(3)
    with pipeline.running() as run:
        run.step()
        ends = pipeline.ledger_ends()
        found = compared(pipeline)
        assert found.code == 0, found
        head, *_, last = found.out.splitlines()
        assert head.startswith(f"{pipeline.name}: no change since the run of release ")
        assert last == "next start    accepts this file"
        assert pipeline.ledger_ends() == ends
        pipeline.fill(1)
        run.step()


@pytest.mark.parametrize("commits", [1, 100])
def test_what_commits_while_it_looks_is_no_reason_to_stop(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """Else the group would be ahead of the ledger, each time that it was asked later."""
    with pipeline.running() as run:
        true, left = next_start.require_name, [None] * commits

        def busy(planned: Plan) -> None:
            if left:
                left.pop()
                pipeline.fill(1)
                run.step()
            true(planned)

        monkeypatch.setattr(next_start, "require_name", busy)
        found = compared(pipeline)
        assert (found.code, "committed during each look" in found.out) == (0, commits > 1), found
        start = [each for each in topics(pipeline.asks, pipeline.planned()) if is_start(each)]
        assert {each.level for each in start} <= {"ok", "note"}, start


def is_start(each: Check) -> bool:
    return each.subject == "start"


def test_what_a_restart_accepts_may_change(pipeline: Pipeline) -> None:
    pipeline.ran(3)
    change(
        pipeline,
        f'"topic": "{pipeline.source}"',
        f'"topics": ["{pipeline.source}", "{pipeline.name}.more"]',
    )
    change(
        pipeline,
        ".out, create: {partitions: 1}",
        '.other, create: {partitions: 2}, where: "key IS NULL"',
    )
    change(pipeline, "SELECT *", "SELECT value")
    pipeline.create(f"{pipeline.name}.more", 1)
    found = compared(pipeline, "--json")
    assert found.code == 0, found
    assert len(verdicts(found)) == 8, found
    assert set(verdicts(found).values()) == {"may change"}
    assert started(pipeline) == 0
    assert compared(pipeline).out.startswith(f"{pipeline.name}: no change since")


def test_a_source_topic_that_is_left_out_stops_with_the_starts_code(pipeline: Pipeline) -> None:
    pipeline.ran(3)
    pipeline.create(f"{pipeline.name}.more", 1)
    change(pipeline, f'"{pipeline.source}"', f'"{pipeline.name}.more"')
    change(pipeline, "SELECT *", "SELECT value")
    found = compared(pipeline, "--json")
    assert verdicts(found) == {"source.kafka.topic": "stops", "transform[1].sql": "may change"}
    (stop,) = found.json["stops"]
    assert (stop["code"], stop["exit_code"]) == ("left_out", 4)
    assert found.code == found.json["exit_code"] == started(pipeline) == 4
    text = compared(pipeline).out
    assert f"--forget-topic {pipeline.source}" in text
    assert text.splitlines()[-1] == "next start    stops with exit code 4: left_out"


def test_a_target_that_is_missing_stops_with_the_starts_code(pipeline: Pipeline) -> None:
    pipeline.ran(3)
    change(pipeline, ".out, create: {partitions: 1}", ".absent")
    found = compared(pipeline, "--json")
    assert verdicts(found)["sink.kafka[" + f"{pipeline.name}.absent].topic"] == "stops"
    assert found.code == 2
    assert [each["code"] for each in found.json["stops"]] == ["target_topic_missing"]


def test_a_timeout_above_the_brokers_limit_stops(pipeline: Pipeline) -> None:
    pipeline.ran(3)
    change(pipeline, "trigger:", "transaction: {timeout: 1 hour}\ntrigger:")
    found = compared(pipeline, "--json")
    assert verdicts(found) == {"transaction.timeout": "stops"}
    assert found.code == started(pipeline) == 4
    (stop,) = found.json["stops"]
    assert "transaction.max.timeout.ms" in stop["hint"]


def test_a_stop_that_no_change_causes_is_reported_next_to_the_changes(pipeline: Pipeline) -> None:
    pipeline.ran(3)
    pipeline.move_group({0: 5})
    change(pipeline, "SELECT *", "SELECT value")
    found = compared(pipeline)
    assert found.code == started(pipeline) == 4
    assert "group_ahead: no change of the file is the cause" in found.out
    assert "may change    transform[1].sql: changed" in found.out


def test_another_deployments_run_is_compared_without_its_state_root(pipeline: Pipeline) -> None:
    """As in CI, where neither its state root nor its deployment is known."""
    change(pipeline, "{partitions: 1}}}", "{partitions: 1}}, delta: {path: lake/rows}}")
    with pipeline.running() as run:
        pipeline.fill(2)
        known = replace(run.batches.position, tables={"rows": TableState("an-id", 0)})
        run.batches.note("start", known)
        run.batches.position = known
        run.step()
    text = file(pipeline).read_text()
    assert [e["code"] for e in compared(pipeline, "--json").json["stops"]] == ["table_replaced"]
    other = pipeline.elsewhere()
    file(other).write_text(text.replace("SELECT *", "SELECT value"))
    found = compared(other, "--json")
    assert found.code == 0, found
    assert verdicts(found) == {"transform[1].sql": "may change"}
    assert found.json["state_root_compared"] is False


def test_changed_steps_of_a_pipeline_with_state_are_left_to_spark(pipeline: Pipeline) -> None:
    with pipeline.running() as run:
        run.batches.note("start", replace(run.batches.position, keeps_state=True))
        run.batches.note("stop", replace(run.batches.position, keeps_state=True))
        run.settled()
    change(pipeline, "SELECT *", "SELECT value")
    found = compared(pipeline)
    assert found.code == 0, found
    assert "Spark decides transform[1].sql: changed" in found.out
    assert found.out.endswith("accepts this file, unless Spark refuses it for the state\n")


def test_the_settings_are_found_however_long_a_run_is(pipeline: Pipeline, monkeypatch) -> None:
    monkeypatch.setattr(ledger, "DECLARED_EVERY", 3)
    monkeypatch.setattr(ledger, "_DECLARED_WITHIN", 6)
    with pipeline.running() as run:
        for _ in range(10):
            pipeline.fill(1)
            run.step()
        records = ledger_of(pipeline.planned(), pipeline.asks).history(20, soon())
        found = [each.declared is not None for each in reversed(records)]
        # The start, and micro-batches 0, 3, 6 and 9.
        assert found == [True, True, *([False, False, True] * 3)]
        assert compared(pipeline, "--json").json["settings_recorded"]
    pipeline.recover("--set-checkpoint-aside", "--yes")
    assert pipeline.last().kind == "recovery"
    assert pipeline.last().declared is None
    assert compared(pipeline, "--json").json["settings_recorded"]


def test_a_run_of_an_older_release_has_no_settings(pipeline: Pipeline, monkeypatch) -> None:
    """Also if a run before it had some, which may be others."""
    pipeline.ran(1)
    with monkeypatch.context() as older:
        older.setattr("eos.__version__", "0.0.9")
        older.setattr(ledger.Ledger, "_settings_for", lambda *_: None)
        pipeline.ran(1)
    change(pipeline, "SELECT *", "SELECT value")
    found = compared(pipeline)
    assert found.code == 0
    assert "the run of release 0.0.9" in found.out
    assert "recorded no settings: only the next start is checked" in found.out


DEDUP = (
    'dedup: {producer: {id: "header(i)", epoch: "header(e)", sequence: "header(s)"}, '
    "scope: partition}\nsink:"
)


def test_dedup_by_other_numbers_stops_and_its_answers_may_change(pipeline: Pipeline) -> None:
    change(pipeline, "sink:", DEDUP)
    rules = pipeline.planned().dedup
    assert rules is not None
    version = state_versions(pipeline.planned(), rules).table.commit({}, "")
    known = version._replace(rules=state_versions(pipeline.planned(), rules).rules)
    with pipeline.running() as run:
        run.batches.note("start", replace(run.batches.position, producers=str(known)))
        run.batches.note("stop")
        run.settled()
    change(pipeline, "scope: partition", "scope: partition, on_gap: accept")
    assert verdicts(compared(pipeline, "--json")) == {"dedup.on_gap": "may change"}
    change(pipeline, "header(s)", "header(other)")
    text, other = file(pipeline).read_text(), pipeline.elsewhere()
    file(pipeline).write_text(text)
    for where in (pipeline, other):
        found = compared(where, "--json")
        assert found.code == 4, found
        assert verdicts(found)["dedup.producer.sequence"] == "stops"
        assert [each["code"] for each in found.json["stops"]] == ["producers_changed"]
    change(pipeline, "header(other)", "header(s)")
    shutil.rmtree(pipeline.planned().names.producers)
    (stop,) = compared(pipeline, "--json").json["stops"]
    assert stop["code"] == "producers_lost"
    assert pipeline.explained().cases == ["producers_lost"]
