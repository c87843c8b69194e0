"""What Spark would tell in its own words, or not at all: damaged files, targets and partitions."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from support.errors import in_turn
from support.kafka import kafka_io
from support.spark.project import PIPELINE, Project
from support.spark.spark_recovery import SparkPipeline

ASIDE = "--set-checkpoint-aside"


@pytest.fixture
def past(project: Project) -> SparkPipeline:
    return SparkPipeline(project, {project.source: 2})


@pytest.mark.long
def test_with_half_an_offsets_file_it_stops(past: SparkPipeline) -> None:
    past.ran(2)
    past.checkpoint.truncate("offsets/1", 40)
    past.stops("[checkpoint_unreadable]", f"{past.checkpoint.folder}/offsets/1", remedy=ASIDE)
    past.recovers(ASIDE)
    past.ran(1)


@pytest.mark.long
def test_with_half_its_metadata_it_stops(past: SparkPipeline) -> None:
    past.ran(2)
    past.checkpoint.truncate("metadata", 10)
    past.stops(f"{past.checkpoint.folder}/metadata", remedy=ASIDE)
    past.recovers(ASIDE)
    past.ran(1)


@pytest.mark.long
@pytest.mark.parametrize(
    "names", in_turn([["offsets/1"], ["offsets/1", "commits/1"], ["metadata"]], 1, every=3)
)
def test_with_files_that_a_power_cut_emptied_it_takes_a_fresh_one(
    past: SparkPipeline, names: list[str]
) -> None:
    past.ran(2)
    for name in names:
        past.checkpoint.truncate(name, 0)
    past.ran(1)
    assert past.checkpoint.folder.name == "0002"


@pytest.mark.long
def test_without_metadata_it_stops(past: SparkPipeline) -> None:
    past.ran(2)
    past.checkpoint.remove("metadata")
    past.stops(f"{past.checkpoint.folder}", remedy=ASIDE)
    past.recovers(ASIDE)
    past.ran(1)


@pytest.mark.long
def test_an_added_partition_that_lost_its_beginning_stops(past: SparkPipeline) -> None:
    past.ran(2)
    topic = past.project.source
    past.add_partitions(topic, 3)
    past.write({(topic, 2): 4}, is_lost=True)
    past.write({(topic, 2): 4})
    past.truncate(topic, 2, 4)
    past.stops("[new_truncated]", f"{topic}-2 is new", "offset 4", remedy=ASIDE)
    past.recovers(ASIDE)
    past.goes_on()


# How many records went with the old topic: those that were committed before the next look at it.
LOST = {"begin:after": 0, "all_acked:before": 0, "offsets:after": 16}


@pytest.mark.parametrize("point", in_turn(reversed(LOST), 1, every=3))
def test_a_target_made_anew_in_mid_batch_has_that_batch_or_it_is_told(
    past: SparkPipeline, point: str
) -> None:
    past.ran(2)
    before = Counter(past.expected)
    past.write_batches(3)
    with past.paused_at(point) as run:
        past.delete_topic(past.project.target)
        past.create_topic(past.project.target, 2)
    if point == "begin:after":
        assert run.wait() == 0, run.said()
    else:
        assert run.wait() == 4, run.said()
        name = past.project.name
        assert f"{name}: the target topic '{past.project.target}' was deleted" in run.said()
        assert f"eos recover {name} --rewind-to" in run.said()
        again = past.project.run_warm()
        assert again.returncode == 0, again.stderr
    wanted = past.expected - before  # what was in the old topic went with it
    give_up_at = time.monotonic() + 300
    missing = wanted
    while missing.total() > LOST[point] and time.monotonic() < give_up_at:  # markers may come late
        found = Counter(row.value for row in kafka_io.read(past.bootstrap, past.project.target))
        assert not found - wanted
        missing = wanted - found
    assert missing.total() == LOST[point]


@pytest.mark.long
def test_a_start_at_the_end_that_has_read_nothing_yet_is_remembered(project: Project) -> None:
    """Its first record says where it begins, in numbers: a second start does not move that."""
    text = PIPELINE.replace("max_records", "start: latest, max_records")
    past = SparkPipeline(project, {project.source: 2}, text)
    past.write(dict.fromkeys(past.partitions(), 3), is_lost=True)
    past.goes_on()
    past.ran(2)


@pytest.mark.long
def test_a_first_run_that_found_nothing_is_no_contradiction(past: SparkPipeline) -> None:
    past.goes_on()
    past.goes_on()
    past.ran(2)
