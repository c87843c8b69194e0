"""`eos recover` without a verb: what it says is what a start then does, and nothing changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest
from support.copies.recovery import Pipeline, soon

from eos.errors import EosError
from eos.inspect import snapshot
from eos.kafka.api import CommittedOffset
from eos.ledger.record import flat, stamped
from eos.startup import topic_lookup

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """With topics that are gone, and with what an open transaction hides."""
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 300)
    monkeypatch.setattr(snapshot, "PATIENCE_MS", 1_000)


def started(pipeline: Pipeline) -> str:
    """What stops the next start, or nothing."""
    try:
        with pipeline.running() as run:
            run.step()
    except EosError as error:
        return error.code
    return ""


# --- what goes on ---------------------------------------------------------------------------------


def untouched(_: Pipeline) -> None:
    pass


def new_records(pipeline: Pipeline) -> None:
    pipeline.fill(2)


def spark_died_before_its_commit_log(pipeline: Pipeline) -> None:
    pipeline.checkpoint().forget("commits/1")


def spark_planned_more_than_is_committed(pipeline: Pipeline) -> None:
    pipeline.fill(2)
    pipeline.checkpoint().forget("commits/1")
    pipeline.checkpoint().plan(1, flat({pipeline.source: {"0": 10, "1": 10}}))


def one_micro_batch_back(pipeline: Pipeline) -> None:
    pipeline.checkpoint().forget("commits/1", "offsets/1")


def one_micro_batch_back_and_more_to_read(pipeline: Pipeline) -> None:
    pipeline.fill(2)
    one_micro_batch_back(pipeline)


def planned(pipeline: Pipeline) -> None:
    pipeline.fill(2)
    pipeline.checkpoint().plan(2, flat({pipeline.source: {"0": 10, "1": 10}}))


def checkpoint_lost(pipeline: Pipeline) -> None:
    shutil.rmtree(pipeline.checkpoints)


def beyond(pipeline: Pipeline) -> None:
    pipeline.checkpoint().plan(1, flat({pipeline.source: {"0": 7, "1": 8}}))
    pipeline.checkpoint().forget("commits/1")


def power_cut(pipeline: Pipeline) -> None:
    for name in ("offsets/0", "offsets/1", "commits/0", "commits/1", "sources/0/0"):
        (pipeline.checkpoint().path / name).write_text("")


def group_deleted(pipeline: Pipeline) -> None:
    pipeline.delete_group()


@pytest.mark.parametrize(
    ("accident", "then"),
    [
        (untouched, "/0001: plans micro-batch 2"),
        (new_records, "/0001: plans micro-batch 2"),
        (spark_died_before_its_commit_log, "/0001: skips micro-batch 1, which is committed"),
        (spark_planned_more_than_is_committed, "/0001: runs micro-batch 1, from the ledger's ends"),
        (one_micro_batch_back, "{root}/0002, because the existing one is older"),
        (one_micro_batch_back_and_more_to_read, "{root}/0002, because the existing one is"),
        (beyond, "{root}/0002, because the existing one is older"),
        (power_cut, "{root}/0002, because the existing one is older"),
        (planned, "/0001: runs micro-batch 2"),
        (checkpoint_lost, "fresh checkpoint {root}/0001, because there is none"),
        (group_deleted, "/0001: plans micro-batch 2"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_start_would_go_on(
    pipeline: Pipeline, accident: Callable[[Pipeline], None], then: str
) -> None:
    pipeline.ran(5, 3)
    accident(pipeline)
    said = pipeline.explained()
    assert (said.code, said.cases, said.json["goes_on"]) == (0, [], True), said
    assert then.format(root=pipeline.checkpoints) in said.json["next"]
    assert said.json["next"] in pipeline.recover().out
    assert started(pipeline) == ""


def test_a_pipeline_without_history_begins(pipeline: Pipeline) -> None:
    said = pipeline.explained()
    assert (said.code, said.json["ledger"]["last"], said.json["history"]) == (0, None, [])
    assert said.json["next"].startswith("begins at `start:`, with checkpoint ")
    assert pipeline.ledger_ends() == {}, "the ledger was created"
    assert started(pipeline) == ""


# --- what stops -----------------------------------------------------------------------------------


def truncated(pipeline: Pipeline) -> None:
    pipeline.fill(4)
    pipeline.truncate(0, 10)
    pipeline.truncate(1, 12)


def source_lost(pipeline: Pipeline) -> None:
    """The ledger and the group know more than the source has."""
    position = pipeline.last().position
    with pipeline.running() as run:
        beyond = {tp: end + 2 for tp, end in position.ends.items()}
        run.batches.note("refresh", replace(position, ends=beyond))
        run.settled()


def recreated(pipeline: Pipeline) -> None:
    pipeline.delete(pipeline.source)
    pipeline.create(pipeline.source, 1)


def gone(pipeline: Pipeline) -> None:
    pipeline.delete(pipeline.source)


def left_out(pipeline: Pipeline) -> None:
    pipeline.create(f"{pipeline.name}.other", 1)
    pipeline.pattern = f"{pipeline.name}[.]other"
    pipeline.declare()


def group_ahead(pipeline: Pipeline) -> None:
    pipeline.fill(4)
    pipeline.move_group({0: 10})


def ledger_empty(pipeline: Pipeline) -> None:
    pipeline.delete(pipeline.planned().names.ledger)
    pipeline.delete_group()


def ledger_lost(pipeline: Pipeline) -> None:
    pipeline.delete(pipeline.planned().names.ledger)
    shutil.rmtree(pipeline.checkpoints)


def only_the_ledger_lost(pipeline: Pipeline) -> None:
    pipeline.delete(pipeline.planned().names.ledger)


def ledger_forgets(pipeline: Pipeline) -> None:
    pipeline.set_ledger(retention_ms="604800000")


def hole(pipeline: Pipeline) -> None:
    """Plain Spark read on."""
    pipeline.fill(4)
    pipeline.checkpoint().plan(2, flat({pipeline.source: {"0": 10, "1": 11}}))
    pipeline.checkpoint().commit(2)


def planned_hole(pipeline: Pipeline) -> None:
    hole(pipeline)
    pipeline.checkpoint().plan(3, flat({pipeline.source: {"0": 12, "1": 12}}))


def beyond_with_state(pipeline: Pipeline) -> None:
    keeps_state(pipeline)
    beyond(pipeline)


def keeps_state(pipeline: Pipeline) -> None:
    """By the ledger and by the checkpoint."""
    with pipeline.running() as run:
        run.batches.note("start", replace(run.batches.position, keeps_state=True))
        run.settled()
    (pipeline.checkpoint().path / "state" / "0").mkdir(parents=True)


def unknown(pipeline: Pipeline) -> None:
    pipeline.add_partitions(3)
    pipeline.fill(5)
    pipeline.checkpoint().plan(1, flat({pipeline.source: {"0": 8, "1": 8, "2": 3}}))
    pipeline.checkpoint().plan(2, flat({pipeline.source: {"0": 13, "1": 13, "2": 5}}))


def checkpoint_unreadable(pipeline: Pipeline) -> None:
    file = pipeline.checkpoint().path / "offsets" / "1"
    file.write_text(file.read_text()[:-3])


STOPS = [
    (truncated, ["truncated"], "--accept-start"),
    (source_lost, ["source_lost"], "--rewind-to 8"),
    (recreated, ["recreated"], "--forget-topic {source}"),
    (gone, ["gone", "source_topic_missing"], "--forget-topic {source}"),
    (left_out, ["left_out"], "--forget-topic {source}"),
    (group_ahead, ["group_ahead"], "--restore-group"),
    (ledger_empty, ["ledger_empty"], "--adopt-checkpoint"),
    (ledger_lost, ["ledger_lost"], "--from-group"),
    (only_the_ledger_lost, ["ledger_lost", "ledger_empty"], "--from-group"),
    (ledger_forgets, ["ledger_forgets"], ""),
    (hole, ["hole"], "--adopt-checkpoint"),
    (planned_hole, ["hole"], "--set-checkpoint-aside"),
    (beyond_with_state, ["beyond"], "--set-checkpoint-aside"),
    (unknown, ["unknown"], "--accept-start"),
    (checkpoint_unreadable, ["checkpoint_unreadable"], "--set-checkpoint-aside"),
]


@pytest.mark.parametrize(
    ("accident", "cases", "way"), STOPS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_start_would_stop(
    pipeline: Pipeline, accident: Callable[[Pipeline], None], cases: list[str], way: str
) -> None:
    pipeline.ran(5, 3)
    accident(pipeline)
    before = pipeline.ledger_ends()
    said = pipeline.explained()
    assert (said.code, said.cases, said.json["goes_on"]) == (1, cases, False), said
    ways = [way["command"] for finding in said.json["findings"] for way in finding["ways"]]
    lead = " ".join(["eos", "recover", *pipeline.words])
    commands = [f"{lead} {way.format(source=pipeline.source)}"] if way else []
    assert set(commands) <= set(ways)
    told = pipeline.recover().out
    each = len(said.json["findings"][0]["messages"])
    assert each == (2 if accident in (truncated, source_lost, hole, planned_hole) else 1)
    for finding in said.json["findings"]:
        assert all(f"{finding['case']}: {message}" in told for message in finding["messages"])
        assert finding["hint"] in told
    assert all(f"  $ {command}\n" in told for command in ways)
    assert pipeline.ledger_ends() == before
    assert started(pipeline) == cases[0]


def test_a_new_partition_stops_a_fresh_checkpoint_too(pipeline: Pipeline) -> None:
    """The copy of a run has no such check: see `tests/pure/test_new_partitions.py`."""
    pipeline.ran(5, 3)
    pipeline.add_partitions(3)
    pipeline.fill(4)
    pipeline.truncate(2, 2)
    checkpoint_lost(pipeline)
    said = pipeline.explained()
    assert (said.code, said.cases) == (1, ["new_truncated"])
    pipeline.did("--set-checkpoint-aside")
    assert pipeline.explained().cases == []


def test_an_older_checkpoint_is_replaced_whatever_the_next_micro_batch_reads(
    pipeline: Pipeline,
) -> None:
    """With 2 records of each partition the next micro-batch would end below the ledger."""
    pipeline.ran(5, 3)
    pipeline.fill(2)
    one_micro_batch_back(pipeline)
    (warned,) = pipeline.explained().json["warnings"]
    assert "/0001 is older than the ledger: the run uses a fresh one" in warned
    with pipeline.running() as run:
        run.step(2)
        assert run.location.endswith("/0002")
        assert [set(step.starts.values()) for step in run.read] == [{8}]
        run.stop()
    assert pipeline.explained().code == 0


def test_everything_that_is_wrong_is_told_at_once(pipeline: Pipeline) -> None:
    pipeline.ran(5, 3)
    pipeline.fill(4)
    pipeline.truncate(0, 10)
    pipeline.move_group({1: 10})
    pipeline.checkpoint().plan(1, flat({pipeline.source: {"0": 8, "1": 7}}))
    pipeline.checkpoint().forget("commits/1")
    pipeline.set_ledger(retention_bytes="1000000")
    said = pipeline.explained()
    assert said.cases == ["ledger_forgets", "truncated", "group_ahead"]
    assert said.json["next"] == "stops with exit code 4: ledger_forgets"


def test_values_stand_side_by_side(pipeline: Pipeline) -> None:
    pipeline.ran(5, 3)
    pipeline.fill(2)
    pipeline.truncate(1, 4)
    pipeline.move_group({1: 6})
    pipeline.checkpoint().plan(2, flat({pipeline.source: {"0": 9, "1": 10}}))
    said = pipeline.explained().json
    keys = ("ledger", "group", "committed", "planned", "earliest", "latest")
    rows = [tuple(row[key] for key in keys) for row in said["partitions"]]
    assert rows == [(8, 8, 8, 9, 0, 10), (8, 6, 8, 10, 4, 10)]
    last = pipeline.last()
    assert said["ledger"]["last"]["offset"] == last.offset
    assert said["checkpoint"]["newest"] == {
        "location": str(pipeline.checkpoint().path),
        "query_id": last.position.query_id,
        "planned": 2,
        "committed": 1,
    }
    assert [each["kind"] for each in said["history"]] == ["stop", "attempt", "attempt", "start"]
    (warned,) = said["warnings"]
    assert f"{pipeline.source}-1 is at 6, the ledger at 8" in warned
    told = pipeline.recover().out
    for words in (
        f"eos.ledger.{pipeline.name}: the last record is a clean stop, at offset {last.offset}, ",
        "by this deployment",
        "(the ledger's last), last micro-batch planned 2, committed 1",
        f"{pipeline.source}: id {last.position.topic_ids[pipeline.source]}, as in the ledger",
        "micro-batch 0, 6 offsets back",
        f"differs     {warned}",
        "agrees      the source has the records that are read next",
    ):
        assert words in told
    (row,) = (line for line in told.splitlines() if line.startswith(f"{pipeline.source}-1"))
    assert row.split()[1:] == ["8", "6", "8", "10", "4", "10"]


# --- while it runs --------------------------------------------------------------------------------


def test_a_running_pipeline_is_not_disturbed(pipeline: Pipeline) -> None:
    with pipeline.running() as run:
        pipeline.fill(5)
        run.step()
        said = pipeline.explained()
        assert (said.code, said.json["goes_on"]) == (0, True)
        assert said.json["runs_as"] == run.batches.ledger.peek(soon()).owner["process"]
        assert "once the running pipeline has ended: " in pipeline.recover().out
        pipeline.fill(3)
        run.step()
        run.stop()
    assert pipeline.explained().json["runs_as"] is None


def test_what_commits_while_it_looks_is_not_compared(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the group would be ahead of the ledger, each time that it was asked later."""
    with pipeline.running() as run:
        true = snapshot.Snapshot.newest

        def busy(seen: snapshot.Snapshot):
            pipeline.fill(1)
            run.step()
            return true(seen)

        monkeypatch.setattr(snapshot.Snapshot, "newest", busy)
        said = pipeline.explained()
        assert (said.code, said.cases, said.json["moving"]) == (0, [], True)
        assert said.json["next"] == "unknown: the running pipeline committed during each look"
        told = pipeline.recover().out
        assert "nothing was compared: the pipeline runs" in told
        assert "next start  unknown: the running pipeline committed" in told


def test_what_a_dead_one_left_open_hides_the_group_and_stops_nothing(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    with pipeline.running() as run:
        batches, position = run.batches, pipeline.last().position
        identity = batches.coordinator.begin(soon())
        record = stamped(batches.ledger.record("refresh", position), identity)
        batches.coordinator.produce({batches.ledger.partition: record}, soon())
        offsets = {tp: CommittedOffset(end) for tp, end in position.ends.items()}
        batches.coordinator.commit_offsets(offsets, soon())
    said = pipeline.explained()
    assert (said.code, said.json["group"]["hidden"]) == (0, True), said
    assert "hidden by an open transaction" in pipeline.recover().out
    would = pipeline.recover("--from-group")
    assert would.code == 5
    assert "[group_offsets_hidden]" in would.err
    done = pipeline.recover("--restore-group", "--yes")  # fences, and sees
    assert (done.code, done.out.splitlines()[0]) == (0, "nothing to do")
    assert pipeline.explained().json["group"]["hidden"] is False
