"""Where a pipeline begins and what it reads: another consumer's offsets, topics by a pattern."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.kafka import kafka_io
from support.spark.project import PIPELINE, Project

pytestmark = pytest.mark.long

READ_BEFORE = 40  # records of each partition that the other consumer has read
BY_PATTERN = PIPELINE.replace("topic: {source}, ", "pattern: '{source}[.][a-z]', start: {start}, ")


def declare(project: Project, start: str, **changed: str) -> None:
    text = BY_PATTERN.replace("{start}", start.replace("{", "{{").replace("}", "}}"))
    for old, new in changed.items():
        text = text.replace(old, new)
    project.declare(records=100, partitions=2, text=text)


def values(project: Project, *topics: str) -> Counter[bytes]:
    bootstrap = project.broker.bootstrap
    return Counter(row.value for topic in topics for row in kafka_io.read(bootstrap, topic))


def commit(project: Project, group: str, **offsets: tuple[int, ...]) -> None:
    """By a consumer of another make; `a=(3, 4)` means partitions 0 and 1 of the topic a."""
    consumer = Consumer({"bootstrap.servers": project.broker.bootstrap, "group.id": group})
    at = [
        TopicPartition(f"{project.source}.{short}", partition, offset)
        for short, of_topic in offsets.items()
        for partition, offset in enumerate(of_topic)
    ]
    consumer.commit(offsets=at, asynchronous=False)
    consumer.close()


def test_a_pipeline_takes_over_from_another_consumer_and_reads_what_comes_under_its_pattern(
    project: Project,
) -> None:
    bootstrap = project.broker.bootstrap
    first, second, third = (f"{project.source}.{short}" for short in "abc")
    # Spark alone would take these for matches as well: it is content with a part of a name.
    others = [f"x{first}", f"{first}.old"]
    kafka_io.create_topics(bootstrap, 2, first, second, *others)
    for number, topic in enumerate((first, second, *others)):
        kafka_io.fill(bootstrap, topic, range(1000 * number, 1000 * number + 300))
    rows = [row for topic in (first, second) for row in kafka_io.read(bootstrap, topic)]
    left = Counter(row.value for row in rows if row.offset >= READ_BEFORE)

    theirs = f"theirs-{project.name}"
    declare(project, f"{{group: {theirs}}}")
    commit(project, theirs, a=(READ_BEFORE,) * 2, b=(READ_BEFORE,))
    stopped = project.run_warm()
    assert stopped.returncode == 2, stopped.stderr
    assert f"which has none for {second}-1" in stopped.stderr
    commit(project, theirs, b=(READ_BEFORE,) * 2)
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert values(project, project.target) == left

    kafka_io.create_topics(bootstrap, 1, third)
    kafka_io.fill(bootstrap, third, range(5000, 5200))
    kafka_io.fill(bootstrap, second, range(1300, 1400))
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    everything = values(project, first, second, third)
    read_before = Counter(row.value for row in rows if row.offset < READ_BEFORE)
    assert values(project, project.target) == everything - read_before

    kafka_io.delete_topics(bootstrap, first)
    stopped = project.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert f"eos recover {project.name} --forget-topic {first}" in stopped.stderr


def test_the_pipelines_own_group_may_be_prepared_for_its_first_start(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    topic = f"{project.source}.a"
    kafka_io.create_topics(bootstrap, 2, topic)
    kafka_io.fill(bootstrap, topic, range(300))
    commit(project, project.group, a=(READ_BEFORE, 0))
    rows = kafka_io.read(bootstrap, topic)
    left = Counter(row.value for row in rows if row.partition or row.offset >= READ_BEFORE)

    declare(project, "group")
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert values(project, project.target) == left


def test_a_pattern_that_only_python_can_read_is_refused(project: Project) -> None:
    kafka_io.create_topics(project.broker.bootstrap, 1, f"{project.source}.a")
    declare(project, "earliest", **{"[.][a-z]": "([.])(?(1)a|b)"})
    stopped = project.run_warm()
    assert stopped.returncode == 2, stopped.stderr
    assert "[source_pattern_unsupported]" in stopped.stderr
