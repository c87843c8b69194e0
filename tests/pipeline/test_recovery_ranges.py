"""One micro-batch whose partitions are whole, new, inside, done, beyond or beyond a hole."""

from __future__ import annotations

import pytest
from support.spark.project import Project
from support.spark.spark_recovery import RECORDS, SparkPipeline


@pytest.fixture
def past(project: Project) -> SparkPipeline:
    """Micro-batches 0 and 1 have read all four partitions, micro-batch 2 only two of them."""
    made = SparkPipeline(project, {project.source: 4}).ran(2)
    topic = project.source
    made.write({(topic, 0): RECORDS, (topic, 1): RECORDS})
    made.goes_on()
    return made


def test_whole_new_inside_and_done_are_each_treated_by_itself(past: SparkPipeline) -> None:
    topic = past.project.source
    past.checkpoint.fall_back(1, to_planned=True)
    past.add_partitions(topic, 5)
    past.write({(topic, 0): 3, (topic, 2): 5, (topic, 4): 4})
    ends = {int(at): offset for at, offset in past.checkpoint.ends(2)[topic].items()}
    planned = {**ends, 0: ends[0] + 3, 2: ends[2] + 5, 4: 4}
    past.checkpoint.rewrite("offsets/2", "offsets/2", {topic: planned})
    assert "micro-batch 2 committed: 12 records in, 12 out" in past.goes_on()
    past.declare()
    past.ran(1)


@pytest.mark.long
def test_beyond_in_one_partition_begins_a_fresh_one_for_all_of_them(past: SparkPipeline) -> None:
    topic, end = past.project.source, 3 * RECORDS
    past.write({(topic, 2): 5, (topic, 3): 5})
    past.checkpoint.fall_back(1, to_planned=True)
    ends = past.checkpoint.ends(2)[topic]
    planned = {int(at): offset for at, offset in ends.items()}
    past.checkpoint.rewrite(
        "offsets/2", "offsets/2", {topic: {**planned, 1: end - 1, 2: 2 * RECORDS + 5}}
    )
    assert "/0001 is older than the ledger: the run uses a fresh one" in past.goes_on()


@pytest.mark.long
def test_a_hole_in_one_partition_stops_all_of_them(past: SparkPipeline) -> None:
    topic, end = past.project.source, 2 * RECORDS
    past.write_batches(2)
    ends = {int(at): offset for at, offset in past.checkpoint.ends(2)[topic].items()}
    past.checkpoint.read_on({topic: {**ends, 3: end + 5}})
    past.stops(
        "[hole]",
        f"{topic}-3 from offset {end + 5} on, but {end} is next",
        remedy="--set-checkpoint-aside",
    )
    past.recovers("--set-checkpoint-aside")
    past.goes_on()


@pytest.mark.long
@pytest.mark.parametrize(
    "verb", ["--accept-start", pytest.param("--set-checkpoint-aside", marks=pytest.mark.nightly)]
)
def test_a_new_partition_that_the_checkpoint_is_already_inside_of_stops(
    past: SparkPipeline, verb: str
) -> None:
    topic = past.project.source
    past.add_partitions(topic, 5)
    past.write({(topic, 4): 9})
    ends = {int(at): offset for at, offset in past.checkpoint.ends(2)[topic].items()}
    past.checkpoint.read_on({topic: {**ends, 4: 4}})
    words = "[unknown]", f"{topic}-4 from offset 4 on", "first record is at 0"
    past.stops(*words, remedy="--accept-start")
    past.recovers(verb)
    if verb == "--accept-start":
        past.never(topic, 4, range(4))
    past.goes_on()
