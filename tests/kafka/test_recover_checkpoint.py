"""`--adopt-checkpoint` and `--set-checkpoint-aside`: which checkpoint counts, and from where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.copies.recovery import CheckpointFolder, Pipeline

from eos.checkpoint.files import LocalFiles
from eos.ledger.record import flat
from eos.startup import topic_lookup


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 300)


@pytest.fixture
def lost(pipeline: Pipeline) -> Pipeline:
    """Its ledger is deleted; the checkpoint has micro-batches 0 (up to 5) and 1 (up to 8)."""
    pipeline.ran(5, 3)
    pipeline.fill(4)
    pipeline.delete(pipeline.planned().names.ledger)
    return pipeline


def adopted(pipeline: Pipeline, end: int, *folder: str) -> str:
    """Adopts, and sees that the next start goes on there. What it said of the micro-batches."""
    did = pipeline.did("--adopt-checkpoint", *folder)
    assert did["ends"] == {pipeline.source: {"0": [None, end], "1": [None, end]}}
    assert did["fresh_checkpoint"]
    assert pipeline.group() == {0: end, 1: end}
    position = pipeline.last().position
    assert (position.batch_id, position.is_reset) == (-1, True)
    assert list(position.topic_ids) == [pipeline.source]
    assert pipeline.explained().code == 0
    with pipeline.running() as run:
        run.step()
        assert [set(step.starts.values()) for step in run.read] == [{end}]
    return "; ".join(did["says"])


# --- adopt ----------------------------------------------------------------------------------------


def test_the_end_of_the_last_committed_micro_batch_is_certain(lost: Pipeline) -> None:
    said = adopted(lost, 8)
    assert "the last micro-batch, 1, is committed and ends there" in said
    assert "a checkpoint has no topic ids" in said


def test_a_planned_one_is_committed_if_the_group_is_where_it_ends(lost: Pipeline) -> None:
    """Spark died between EndTxn and its commit log."""
    lost.checkpoint().forget("commits/1")
    said = adopted(lost, 8)
    proof = "micro-batch 1 is not in Spark's commit log, but the group's offsets are its ends"
    assert proof in said


def test_a_planned_one_is_not_committed_if_the_group_is_where_it_begins(lost: Pipeline) -> None:
    lost.checkpoint().plan(2, flat({lost.source: {"0": 12, "1": 12}}))
    said = adopted(lost, 8)
    assert "micro-batch 1 is the last one that Spark committed, and ends there" in said
    assert "micro-batch 2 was planned, but not committed" in said


@pytest.mark.parametrize("group", [{}, {0: 12, 1: 8}])
def test_a_planned_one_that_nobody_knows_of_is_read_again(
    lost: Pipeline, group: dict[int, int]
) -> None:
    lost.delete_group()
    if group:
        lost.move_group(group)
    lost.checkpoint().plan(2, flat({lost.source: {"0": 12, "1": 12}}))
    assert "do not show whether it is committed" in adopted(lost, 8)


def test_without_any_commit_it_is_where_the_first_one_begins(lost: Pipeline) -> None:
    lost.delete_group()
    lost.checkpoint().forget("commits/0", "commits/1", "offsets/1")
    assert "begins there; Spark committed none" in adopted(lost, 0)


def test_a_pipeline_moves_here_from_plain_spark(pipeline: Pipeline, tmp_path: Path) -> None:
    """What plain Spark may have written in part is written a second time, and it is said."""
    pipeline.fill(9)
    spark = CheckpointFolder(tmp_path / "plain" / "checkpoint")
    spark.begin(flat({pipeline.source: {"0": 0, "1": 0}}))
    (spark.path / "state" / "0").mkdir(parents=True)
    for number, end in enumerate((4, 7, 9)):
        spark.plan(number, flat({pipeline.source: {"0": end, "1": end}}))
    spark.commit(0)
    spark.commit(1)
    pipeline.move_group({0: 9, 1: 9})  # says nothing of a checkpoint that is not ours
    said = adopted(pipeline, 7, str(spark.path))
    assert "micro-batch 2 may be written in part: it is read again" in said
    assert "the query had state, which is not adopted" in said
    assert (spark.path / "commits" / "1").exists()


def test_plain_spark_read_on_and_the_ledger_follows(pipeline: Pipeline) -> None:
    """The case `hole`."""
    pipeline.ran(5)
    pipeline.fill(4)
    pipeline.checkpoint().plan(1, flat({pipeline.source: {"0": 9, "1": 6}}))
    pipeline.checkpoint().commit(1)
    assert pipeline.explained().cases == ["hole"]
    did = pipeline.did("--adopt-checkpoint")
    assert did["ends"] == {pipeline.source: {"0": [5, 9], "1": [5, 6]}}
    assert "5 offsets of" in did["says"][-1]
    assert "are skipped" in did["says"][-1]
    assert pipeline.recover("--adopt-checkpoint", "--yes").out.startswith("nothing to do")
    assert pipeline.explained().code == 0


def test_what_only_one_of_the_two_has_is_named(lost: Pipeline) -> None:
    lost.add_partitions(3)
    ends = {lost.source: {"0": 8, "1": 8}, "of.old": {"0": 3}}
    lost.checkpoint().plan(1, flat(ends))
    lost.truncate(0, 10)
    says = lost.did("--adopt-checkpoint")["says"]
    assert "of.old-0: not in the source now; ignored" in says
    assert f"{lost.source}-2: not in the checkpoint, so it is read from its beginning" in says
    assert f"{lost.source}-0 begins at 10 by now: the next run stops (truncated)" in "; ".join(says)
    assert lost.explained().cases == ["truncated"]


REFUSED = {
    "two sources": ('{"t":{"0":1}}\n{"t":{"0":2}}', "4 lines where one source has 3"),
    "files, not Kafka": ('{"logOffset":3}', "not the offsets of a Kafka source"),
    "a rate": ("12", "not the offsets of a Kafka source"),
    "cut": ('{"t":{"0":', "has a format that this release does not support"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_checkpoint_that_is_not_of_one_kafka_source_is_refused(lost: Pipeline, what: str) -> None:
    text, words = REFUSED[what]
    (lost.checkpoint().path / "offsets" / "1").write_text(f"v1\n{json.dumps({})}\n{text}")
    refused = lost.recover("--adopt-checkpoint", "--yes")
    assert (refused.code, words in refused.err) == (2, True), refused
    assert "[checkpoint_not_adoptable]" in refused.err


def test_a_checkpoint_of_something_else_is_refused(lost: Pipeline, tmp_path: Path) -> None:
    ends = {"0": 8, "1": 13}
    lost.checkpoint().plan(1, flat({lost.source: ends}))
    other = lost.checkpoint().copied(tmp_path / "other")
    other.plan(1, flat({"other": ends}))
    for folder, words in (
        ("", f"offset 13 of {lost.source}-1, which ends at 12"),
        (str(other.path), "reads other, which the pipeline does not read"),
        (str(tmp_path), "[not_a_checkpoint]"),
        ("hdfs://node:1/checkpoint", "[checkpoint_not_local]"),
    ):
        refused = lost.recover("--adopt-checkpoint", *filter(None, [folder]), "--yes")
        assert (refused.code, words in refused.err) == (2, True), refused
    assert lost.ledger_ends() == {}


def test_without_a_checkpoint_there_is_none_to_adopt(pipeline: Pipeline) -> None:
    refused = pipeline.recover("--adopt-checkpoint", "--yes")
    assert (refused.code, "[checkpoint_missing]" in refused.err) == (2, True)


# --- set aside ------------------------------------------------------------------------------------


def test_set_aside_the_next_start_goes_on_in_a_fresh_one(pipeline: Pipeline) -> None:
    pipeline.ran(5, 3)
    pipeline.fill(4)
    spark = pipeline.checkpoint()
    spark.copied(spark.path.with_name("0002")).forget("metadata")
    assert pipeline.explained().cases == ["checkpoint_unreadable"]
    before = pipeline.last().position
    did = pipeline.did("--set-checkpoint-aside")
    assert (did["ends"], did["fresh_checkpoint"]) == ({}, True)
    ((old, new),) = did["renames"].items()
    assert new.startswith(f"{pipeline.checkpoints}/aside-0002-")
    assert old == str(pipeline.checkpoint(2).path)
    assert sorted(map(str, pipeline.checkpoints.iterdir())) == [str(spark.path), new]
    after = pipeline.last().position
    assert (after.ends, after.is_reset) == (before.ends, True)
    # Not with the older one, although its folder is the newest now.
    with pipeline.running() as run:
        assert run.location.endswith("/0002")
        run.step()
        assert [set(step.starts.values()) for step in run.read] == [{8}]
        run.stop()
    assert pipeline.explained().code == 0


def test_a_folder_that_can_not_be_renamed_is_told_and_left_behind_all_the_same(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: LocalFiles, _old: str, _new: str) -> None:
        raise PermissionError(13, "Permission denied")

    pipeline.ran(5)
    monkeypatch.setattr(LocalFiles, "rename", refuse)
    done = pipeline.recover("--set-checkpoint-aside", "--yes")
    assert (done.code, "(Permission denied)" in done.err) == (5, True)
    assert "the ledger is changed already: rename the folder by hand" in done.err
    with pipeline.running() as run:
        assert run.location.endswith("/0002")


def test_a_state_root_that_can_not_be_read_is_told(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: LocalFiles, path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    pipeline.ran(5)
    monkeypatch.setattr(LocalFiles, "names", refuse)
    done = pipeline.recover()
    assert (done.code, done.out) == (5, "")
    where = f"the checkpoint folder {pipeline.checkpoints} can't be listed (Permission denied)"
    assert done.err.startswith(f"eos: [checkpoint_access_denied] {where}\n  hint: ")


def test_an_unreadable_one_is_set_aside(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    (pipeline.checkpoint().path / "metadata").unlink()
    assert pipeline.explained().cases == ["checkpoint_unreadable"]
    pipeline.did("--set-checkpoint-aside")
    assert pipeline.explained().code == 0


def test_setting_aside_what_holds_state_says_that_totals_restart(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    assert pipeline.recover("--set-checkpoint-aside", "--json").json["says"] == []
    with pipeline.running() as run:
        run.batches.note("start", replace(run.batches.position, keeps_state=True))
        run.stop()
    (told,) = pipeline.recover("--set-checkpoint-aside", "--json").json["says"]
    assert "--accept-state-loss" in told
    assert "every total restarts" in told


def test_with_an_empty_ledger_all_of_them_go_and_kafka_is_left_alone(lost: Pipeline) -> None:
    """Else the next older one would be taken. Beginning anew is said plainly."""
    spark = lost.checkpoint()
    spark.copied(spark.path.with_name("0002"))
    lost.delete_group()
    assert lost.explained().cases == ["ledger_empty"]
    (says,) = lost.did("--set-checkpoint-aside")["says"]
    assert "output that was written before is written a second time" in says
    assert lost.ledger_ends() == {}
    assert [path.name[:6] for path in lost.checkpoints.iterdir()] == ["aside-", "aside-"]
    explained = lost.explained()
    assert (explained.code, "begins at `start:`" in explained.json["next"]) == (0, True)


def test_without_one_there_is_nothing_to_set_aside(pipeline: Pipeline) -> None:
    for _ in range(2):
        done = pipeline.recover("--set-checkpoint-aside", "--yes")
        assert (done.code, done.out.splitlines()[0]) == (0, "nothing to do")
        (pipeline.checkpoints / "0001" / "sources").mkdir(parents=True, exist_ok=True)


def test_where_only_spark_can_read_the_note_alone_does_it(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    profile = Path(pipeline.words[2])
    remote = json.loads(profile.read_text())
    remote |= {"state": {"root": "hdfs://node:1/eos"}, "deployment": pipeline.planned().deployment}
    profile.write_text(json.dumps(remote))
    explained = pipeline.recover()
    assert explained.code == 0
    assert "in hdfs://node:1/eos/checkpoints/" in explained.out
    assert "which only a running Spark can read" in explained.out
    (says,) = pipeline.did("--set-checkpoint-aside")["says"]
    assert "the next run uses a fresh one anyway" in says
    assert pipeline.last().position.is_reset
    refused = pipeline.recover("--adopt-checkpoint", "--yes")
    assert (refused.code, "copy the newest one to a local folder" in refused.err) == (2, True)
