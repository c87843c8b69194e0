"""`--from-group` and `--restore-group`: who is right, the group or the ledger."""

from __future__ import annotations

import shutil

import pytest
from support.copies.recovery import Pipeline


@pytest.fixture
def moved(pipeline: Pipeline) -> Pipeline:
    """Partition 0 of its group is 2 ahead, partition 1 is 3 back."""
    pipeline.ran(5, 3)
    pipeline.fill(4)
    pipeline.move_group({0: 10, 1: 5})
    assert pipeline.explained().cases == ["group_ahead"]
    return pipeline


def test_from_group_goes_on_where_the_group_is(moved: Pipeline) -> None:
    did = moved.did("--from-group")
    assert did["ends"] == {moved.source: {"0": [8, 10], "1": [8, 5]}}
    assert (did["group"], did["fresh_checkpoint"]) == ({}, True)
    assert did["says"] == [
        f"2 offsets of {moved.source}-0 are skipped: this pipeline will not read them",
        (
            f"3 offsets of {moved.source}-1 are read again: their output is written a second "
            f"time to {moved.name}.out"
        ),
    ]
    assert moved.ends() == {moved.source: {"0": 10, "1": 5}}
    assert moved.last().position.is_reset
    assert moved.group() == {0: 10, 1: 5}
    assert moved.explained().code == 0
    with moved.running() as run:
        assert run.location.endswith("/0002")
        run.step()
        assert {tp.partition: at for tp, at in run.read[0].starts.items()} == {0: 10, 1: 5}
    assert moved.last().position.is_reset is False


def test_restore_group_puts_it_back_and_keeps_the_checkpoint(moved: Pipeline) -> None:
    before = moved.last().position
    did = moved.did("--restore-group")
    assert did["group"] == {moved.source: {"0": [10, 8], "1": [5, 8]}}
    assert (did["ends"], did["fresh_checkpoint"]) == ({}, False)
    assert moved.group() == {0: 8, 1: 8}
    assert moved.last().position == before
    assert moved.explained().code == 0
    with moved.running() as run:
        assert run.location.endswith("/0001")
        run.step()
        assert {tp.partition: at for tp, at in run.read[0].starts.items()} == {0: 8, 1: 8}


def test_with_ledger_and_checkpoint_lost_the_group_still_knows(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    pipeline.delete(pipeline.planned().names.ledger)
    shutil.rmtree(pipeline.checkpoints)
    assert pipeline.explained().cases == ["ledger_lost"]
    did = pipeline.did("--from-group")
    assert did["ends"] == {pipeline.source: {"0": [None, 5], "1": [None, 5]}}
    assert list(did["topic_ids"]) == [pipeline.source]
    assert pipeline.explained().code == 0
    pipeline.fill(2)
    with pipeline.running() as run:
        run.step()
        assert set(run.read[0].starts.values()) == {5}


def test_where_the_group_has_nothing_the_ledger_stays(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    pipeline.delete_group()
    pipeline.move_group({0: 2})
    pipeline.create(f"{pipeline.name}.other", 1)
    pipeline.move_group({0: 7}, f"{pipeline.name}.other")
    pipeline.add_partitions(3)
    did = pipeline.did("--from-group")
    assert did["ends"] == {pipeline.source: {"0": [5, 2]}}
    assert did["says"][1:] == [
        f"{pipeline.source}-1: the group has no offset, so the ledger's end is kept",
        f"{pipeline.source}-2: in neither of them, so it is read from its beginning",
        f"{pipeline.name}.other-0: in the group, but not in the source; ignored",
    ]
    assert pipeline.ends() == {pipeline.source: {"0": 2, "1": 5}}
    assert pipeline.group() == {0: 2, 1: 5}


def test_a_partition_that_only_the_group_knows_begins_there(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    pipeline.add_partitions(3)
    pipeline.fill(4)
    pipeline.move_group({2: 3})
    assert pipeline.did("--from-group")["ends"] == {pipeline.source: {"2": [None, 3]}}
    with pipeline.running() as run:
        run.step()
        assert {tp.partition: at for tp, at in run.read[0].starts.items()} == {0: 5, 1: 5, 2: 3}


def test_equal_there_is_nothing_to_do(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    before = pipeline.ledger_ends()
    for verb in ("--from-group", "--restore-group"):
        for yes in ([], ["--yes"]):
            done = pipeline.recover(verb, *yes)
            assert (done.code, done.out.splitlines()[0]) == (0, "nothing to do")
    assert pipeline.ledger_ends() == before
    assert pipeline.recover("--from-group", "--yes", "--json").json["done"] is False


def test_a_group_that_is_out_of_the_topic_is_refused(pipeline: Pipeline) -> None:
    pipeline.ran(5)
    pipeline.truncate(1, 3)
    for offset in (6, 2):
        pipeline.move_group({1: offset})
        done = pipeline.recover("--from-group", "--yes")
        assert (done.code, done.out) == (2, "")
        assert f"offset {offset} of {pipeline.source}-1, which has 3 to 5" in done.err
    assert pipeline.ends() == {pipeline.source: {"0": 5, "1": 5}}


def test_without_offsets_or_without_a_ledger_there_is_nothing_to_go_by(pipeline: Pipeline) -> None:
    refused = pipeline.recover("--from-group", "--yes")
    assert (refused.code, "[group_without_offsets]" in refused.err) == (2, True)
    refused = pipeline.recover("--restore-group", "--yes")
    assert (refused.code, "[restore_from_empty_ledger]" in refused.err) == (2, True)
    assert pipeline.ledger_ends() == {}, "refused, and yet the ledger was made"


def test_a_group_ahead_is_not_forgotten_by_the_way(moved: Pipeline) -> None:
    """Another verb's record commits all group offsets: it says what is undone by it."""
    would = moved.recover("--set-checkpoint-aside")
    assert f"group  {moved.source}-0  10 -> 8" in would.out
    told = f"another client moved {moved.source}-0 ahead; to keep these offsets, use --from-group"
    assert told in would.out
    assert "another client moved" not in moved.recover("--restore-group").out
    assert "another client moved" not in moved.recover("--from-group").out
