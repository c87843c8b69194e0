"""The source changes under the pipeline: topics made anew, truncated, widened, come and gone."""

from __future__ import annotations

import pytest
from support.spark.project import PIPELINE, Project
from support.spark.spark_recovery import RECORDS, SparkPipeline

from eos.startup import topic_lookup

TWO = PIPELINE.replace("topic: {source}", "topics: [{source}.a, {source}.b]")
PATTERN = PIPELINE.replace("topic: {source}", 'pattern: "{name}[.]in[.].*"')


@pytest.fixture
def past(project: Project) -> SparkPipeline:
    return SparkPipeline(project, {project.source: 2})


@pytest.fixture(
    params=[
        pytest.param(TWO, id="names", marks=pytest.mark.long),
        pytest.param(PATTERN, id="pattern"),
    ]
)
def two(project: Project, request: pytest.FixtureRequest) -> SparkPipeline:
    return SparkPipeline(project, {f"{project.source}.{name}": 2 for name in "ab"}, request.param)


@pytest.fixture
def matched(project: Project) -> SparkPipeline:
    return SparkPipeline(project, {f"{project.source}.a": 2}, PATTERN)


def test_a_topic_that_was_created_again_stops(past: SparkPipeline) -> None:
    past.ran(2)
    past.delete_topic(past.project.source)
    past.create_topic(past.project.source)
    past.stops(
        f"[recreated] {past.project.name}: the source topic '{past.project.source}'",
        remedy=f"--forget-topic {past.project.source}",
    )
    past.recovers("--forget-topic", past.project.source)
    past.ran(2)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """`eos recover` believes at once that a topic is gone; the pipeline itself does not."""
    monkeypatch.setattr(topic_lookup, "_PASSES_WITHIN_MS", 100)


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_gone_stops(past: SparkPipeline) -> None:
    past.ran(2)
    past.delete_topic(past.project.source)
    past.stops(
        f"[gone] {past.project.name}: the source topic '{past.project.source}'",
        remedy=f"--forget-topic {past.project.source}",
    )
    past.recovers("--forget-topic", past.project.source)
    past.create_topic(past.project.source)
    past.ran(2)


@pytest.mark.long
def test_what_is_deleted_below_the_ledgers_end_is_nobodys_loss(past: SparkPipeline) -> None:
    past.ran(2)
    past.truncate(past.project.source, 0, RECORDS + 3)
    past.truncate(past.project.source, 1, 2 * RECORDS)
    past.ran(1)


def test_what_is_deleted_beyond_the_ledgers_end_stops(past: SparkPipeline) -> None:
    past.ran(2)
    topic = past.project.source
    past.write({(topic, 1): 3}, is_lost=True)
    past.write({(topic, 0): 5, (topic, 1): 5})
    end = 2 * RECORDS
    past.truncate(topic, 1, end + 3)
    where = f"{topic}-1 begins at offset {end + 3}, but {end} is next"
    past.stops("[truncated]", where, remedy="--accept-start")
    past.recovers("--accept-start")
    past.goes_on()


@pytest.mark.long
def test_partitions_that_are_added_are_read_from_their_beginning(past: SparkPipeline) -> None:
    past.ran(2)
    past.add_partitions(past.project.source, 4)
    past.declare()
    past.ran(2)


@pytest.mark.long
def test_several_topics_of_which_one_has_something_new(two: SparkPipeline) -> None:
    two.ran(2)
    one, other = two.topics
    two.write({(one, 0): 5})
    two.goes_on()
    two.write({(other, 1): 5})
    two.checkpoint.fall_back(1)
    two.declare(times=5)
    assert "micro-batch 0 committed: 5 records in, 5 out" in two.goes_on()  # in a fresh one


@pytest.mark.long
def test_one_of_several_topics_that_was_created_again_stops(two: SparkPipeline) -> None:
    two.ran(1)
    _, other = two.topics
    two.delete_topic(other)
    two.create_topic(other)
    two.stops("[recreated]", f"'{other}'", remedy=f"--forget-topic {other}")
    two.recovers("--forget-topic", other)
    two.ran(1)


@pytest.mark.long
def test_a_topic_that_comes_to_match_is_read_from_its_beginning(matched: SparkPipeline) -> None:
    matched.ran(2)
    new = f"{matched.project.source}.b"
    matched.topics[new] = 2
    matched.create_topic(new)
    matched.declare()
    matched.ran(2)


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
def test_a_topic_that_no_longer_matches_since_it_is_gone_stops(matched: SparkPipeline) -> None:
    new = f"{matched.project.source}.b"
    matched.topics[new] = 2
    matched.create_topic(new)
    matched.declare()
    matched.ran(2)
    matched.delete_topic(new)
    matched.stops("[gone]", f"source topic '{new}'", remedy=f"--forget-topic {new}")
    matched.recovers("--forget-topic", new)
    del matched.topics[new]
    matched.declare()
    matched.ran(1)
