"""The checkpoint is lost, old, half there or another's: the ledger knows where to go on."""

from __future__ import annotations

import shutil

import pytest
from support.spark.project import Project
from support.spark.spark_recovery import RECORDS, SparkPipeline

ASIDE = "--set-checkpoint-aside"


@pytest.fixture
def past(project: Project) -> SparkPipeline:
    return SparkPipeline(project, {project.source: 2})


def test_lost_it_goes_on_where_the_ledger_ends(past: SparkPipeline) -> None:
    past.ran(2)
    shutil.rmtree(past.checkpoints)
    past.ran(1)


@pytest.mark.long
def test_half_made_with_starts_of_an_older_plan_it_is_not_used(past: SparkPipeline) -> None:
    past.ran(2)
    past.checkpoint.remove("offsets", "commits")
    past.ran(1)
    assert past.checkpoint.folder.name == "0002"


def test_one_micro_batch_back_and_planned_that_one_is_skipped(past: SparkPipeline) -> None:
    past.ran(3)
    past.checkpoint.fall_back(1, to_planned=True)
    assert "micro-batch 2 skipped" in past.goes_on()
    past.ran(1)


@pytest.mark.long
@pytest.mark.parametrize("batches", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_files_that_are_gone_or_older_are_replaced_at_the_ledgers_ends(
    past: SparkPipeline, batches: int
) -> None:
    past.ran(3)
    past.checkpoint.fall_back(batches)
    past.write_batches(1)
    said = past.goes_on()
    assert "/0001 is older than the ledger: the run uses a fresh one" in said
    assert past.checkpoint.folder.name == "0002"
    past.ran(1)


@pytest.mark.long
def test_planned_again_with_a_longer_range_it_is_run_from_inside(past: SparkPipeline) -> None:
    past.ran(3)
    past.write_batches(1)
    past.checkpoint.fall_back(1, to_planned=True)
    ends = dict.fromkeys(range(2), 4 * RECORDS)
    past.checkpoint.rewrite("offsets/2", "offsets/2", {past.project.source: ends})
    said = past.goes_on()
    assert f"micro-batch 2 committed: {2 * RECORDS} records in, {2 * RECORDS} out" in said
    past.ran(1)


@pytest.mark.long
def test_restored_from_a_copy_it_is_replaced_at_the_ledgers_ends(past: SparkPipeline) -> None:
    past.ran(2)
    copy = past.project.folder / "copy"
    past.checkpoint.copy_to(copy)
    past.ran(3)
    past.checkpoint.restore_from(copy)
    past.ran(1)
    assert past.checkpoint.folder.name == "0002"


@pytest.mark.long
@pytest.mark.parametrize(
    "verb", [pytest.param(ASIDE, marks=pytest.mark.nightly), "--adopt-checkpoint"]
)
def test_read_on_by_plain_spark_it_has_a_hole(past: SparkPipeline, verb: str) -> None:
    past.ran(2)
    past.write_batches(2)
    topic, end = past.project.source, 2 * RECORDS
    past.checkpoint.read_on({topic: {0: end + 3, 1: end + 5}})
    words = "[hole]", "micro-batch 3", f"{topic}-0 from offset {end + 3} on, but {end} is next"
    past.stops(*words, remedy=ASIDE)
    past.recovers(verb)
    if verb != ASIDE:
        past.never(topic, 0, range(end, end + 3))
        past.never(topic, 1, range(end, end + 5))
    past.goes_on()
    past.ran(1)
