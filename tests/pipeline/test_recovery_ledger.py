"""The ledger is gone, or is another's: what nobody may decide but a person."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from support.spark.project import PIPELINE, Project
from support.spark.spark_recovery import RECORDS, SparkPipeline

# Not before it has taken the pipeline: each row fails, when it is read.
FAILING = "def passed_on(frame):\n    return frame.where('assert_true(key IS NULL) IS NULL')\n"


@pytest.fixture
def past(project: Project) -> SparkPipeline:
    return SparkPipeline(project, {project.source: 2})


def test_deleted_it_is_not_begun_anew(past: SparkPipeline) -> None:
    past.ran(2)
    past.delete_topic(past.project.ledger)
    past.stops("[ledger_lost]", past.project.ledger, remedy="--from-group")
    past.recovers("--from-group")
    past.ran(1)


@pytest.mark.long
def test_deleted_with_the_group_the_checkpoint_still_knows(past: SparkPipeline) -> None:
    past.ran(2)
    past.delete_topic(past.project.ledger)
    past.delete_group()
    words = "[ledger_empty]", str(past.checkpoint.folder), past.project.ledger
    past.stops(*words, remedy="--adopt-checkpoint")
    past.recovers("--adopt-checkpoint")
    past.ran(1)


@pytest.mark.long
def test_deleted_with_the_checkpoint_the_group_still_knows(past: SparkPipeline) -> None:
    past.ran(2)
    past.delete_topic(past.project.ledger)
    shutil.rmtree(past.checkpoints)
    where = f"{past.project.source}-0 is at {2 * RECORDS}"
    past.stops("[ledger_lost]", where, remedy="--from-group")
    past.recovers("--from-group")
    past.ran(1)


@pytest.mark.long
def test_the_checkpoint_of_another_program_is_not_begun_anew(
    past: SparkPipeline, project: Project
) -> None:
    """Spark wrote it as it does for any query: who called it can't be told from its files."""
    past.ran(2)
    text = PIPELINE.replace("{source}", past.project.source)
    other = SparkPipeline(replace(project, name=f"{project.name}b"), {}, text)
    other.topics, other.written = past.topics, past.written
    other.declare()
    shutil.copytree(past.checkpoint.folder, other.checkpoints / "0001")
    words = "[ledger_empty]", str(other.checkpoint.folder), other.project.ledger
    other.stops(*words, remedy="--adopt-checkpoint")
    other.recovers("--adopt-checkpoint")
    other.ran(1)


@pytest.mark.long
def test_another_deployment_that_did_not_end_cleanly_is_left_alone(past: SparkPipeline) -> None:
    past.ran(1)
    past.write_batches(1)
    transform = past.project.folder / "pipelines" / past.project.name / "transform.py"
    text = transform.read_text()
    transform.write_text(FAILING)
    assert past.project.run_warm().returncode == 5
    transform.write_text(text)
    past.moved_to("elsewhere")
    places = "/state, host", "/elsewhere)."
    past.stops("[another_deployment]", *places, remedy="--take-over", command="")
    past.goes_on("--take-over")
    past.ran(1)


@pytest.mark.long
def test_a_copy_of_another_deployments_checkpoint_is_not_gone_on_with(past: SparkPipeline) -> None:
    past.ran(1)
    state = past.project.folder / "state"
    shutil.copytree(state, past.project.folder / "elsewhere")
    past.ran(2)
    past.moved_to("elsewhere")
    past.ran(2)
    past.moved_to("state")
    past.ran(1)
