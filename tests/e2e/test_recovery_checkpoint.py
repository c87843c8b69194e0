"""The checkpoint is lost, old, half there or another's: the ledger knows where to go on."""

from __future__ import annotations

import shutil

import pytest
from support.past import RECORDS, Past
from support.project import Project

ASIDE = "--set-checkpoint-aside"


@pytest.fixture
def past(project: Project) -> Past:
    return Past(project, {project.source: 2})


def test_lost_it_goes_on_where_the_ledger_ends(past: Past) -> None:
    past.ran(2)
    shutil.rmtree(past.checkpoints)
    past.ran(1)


def test_half_made_with_starts_of_an_older_plan_it_is_not_used(past: Past) -> None:
    past.ran(2)
    past.checkpoint.remove("offsets", "commits")
    past.ran(1)
    assert past.checkpoint.folder.name == "0002"


def test_one_micro_batch_back_and_planned_that_one_is_skipped(past: Past) -> None:
    past.ran(3)
    past.checkpoint.fall_back(1, to_planned=True)
    assert "micro-batch 2 skipped" in past.goes_on()
    past.ran(1)


def test_one_micro_batch_back_the_same_range_is_done(past: Past) -> None:
    past.ran(3)
    past.checkpoint.fall_back(1)
    assert "micro-batch 2 skipped" in past.goes_on()
    past.ran(1)


def test_one_micro_batch_back_a_longer_range_is_run_from_inside(past: Past) -> None:
    past.ran(3)
    past.checkpoint.fall_back(1)
    past.write_batches(1)
    past.declare(times=5)
    said = past.goes_on()
    assert f"micro-batch 2 committed: {2 * RECORDS} records in, {2 * RECORDS} out" in said


def test_ten_micro_batches_back_it_stops(past: Past) -> None:
    past.ran(12)
    past.checkpoint.fall_back(10)
    where = f"{past.project.source}-0 up to offset {3 * RECORDS}"
    past.stops("micro-batch 2", where, f"ledger says that {12 * RECORDS} is next", remedy=ASIDE)
    past.recovers(ASIDE)
    past.ran(1)


def test_ten_micro_batches_back_in_one_range_it_is_done(past: Past) -> None:
    past.ran(12)
    past.checkpoint.fall_back(10)
    past.declare(times=20)
    assert "micro-batch 2 skipped" in past.goes_on()
    past.declare()
    past.ran(1)


def test_restored_from_a_copy_it_stops(past: Past) -> None:
    past.ran(2)
    copy = past.project.folder / "copy"
    past.checkpoint.copy_to(copy)
    past.ran(3)
    past.checkpoint.restore_from(copy)
    where = f"{past.project.source}-0 up to offset {3 * RECORDS}"
    past.stops("micro-batch 2", where, f"ledger says that {5 * RECORDS} is next", remedy=ASIDE)
    past.recovers(ASIDE)
    past.ran(1)


@pytest.mark.parametrize("verb", [ASIDE, "--adopt-checkpoint"])
def test_read_on_by_plain_spark_it_has_a_hole(past: Past, verb: str) -> None:
    past.ran(2)
    past.write_batches(2)
    topic, end = past.project.source, 2 * RECORDS
    past.checkpoint.read_on({topic: {0: end + 3, 1: end + 5}})
    words = ("micro-batch 3", f"{topic}-0 from offset {end + 3} on", f"says that {end} is next")
    past.stops(*words, remedy=ASIDE)
    past.recovers(verb)
    if verb != ASIDE:
        past.never(topic, 0, range(end, end + 3))
        past.never(topic, 1, range(end, end + 5))
    past.goes_on()
    past.ran(1)
