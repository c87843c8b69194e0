"""An operator moves the group's offsets: a mirror of the ledger, never the truth."""

from __future__ import annotations

import pytest
from support.spark.project import Project
from support.spark.spark_recovery import RECORDS, SparkPipeline


@pytest.fixture
def past(project: Project) -> SparkPipeline:
    return SparkPipeline(project, {project.source: 2}).ran(2)


def test_deleted_it_is_warned_of_and_put_right(past: SparkPipeline) -> None:
    past.delete_group()
    said = past.goes_on()
    assert f"{past.project.source}-0 is at nothing, the ledger at {2 * RECORDS}" in said
    assert "warning" not in past.goes_on()
    past.ran(1)


@pytest.mark.long
def test_reset_back_it_is_warned_of_and_put_right(past: SparkPipeline) -> None:
    past.move_group(past.project.source, {1: 3})
    said = past.goes_on()
    assert f"{past.project.source}-1 is at 3, the ledger at {2 * RECORDS}" in said
    assert "warning" not in past.goes_on()
    past.ran(1)


@pytest.mark.long
@pytest.mark.parametrize(
    "verb", ["--from-group", pytest.param("--restore-group", marks=pytest.mark.nightly)]
)
def test_reset_ahead_it_stops(past: SparkPipeline, verb: str) -> None:
    past.write_batches(1)
    past.move_group(past.project.source, {1: 2 * RECORDS + 3})
    where = f"{past.project.source}-1 is at {2 * RECORDS + 3}, the ledger at {2 * RECORDS}"
    past.stops("[group_ahead]", where, "`--restore-group`", remedy="--from-group")
    past.recovers(verb)
    if verb == "--from-group":
        past.never(past.project.source, 1, range(2 * RECORDS, 2 * RECORDS + 3))
    past.goes_on()
    past.ran(1)


@pytest.mark.long
def test_moved_inside_a_transaction_it_is_warned_of_and_put_right(past: SparkPipeline) -> None:
    """A plain OffsetCommit between ours and the end of the transaction wins."""
    past.write_batches(2)
    with past.paused_at("offsets:after") as run:
        past.move_group(past.project.source, {1: 3})
    assert run.wait() == 0, run.said()
    past.check()
    assert f"{past.project.source}-1 is at 3, the ledger at {3 * RECORDS}" in run.said()
