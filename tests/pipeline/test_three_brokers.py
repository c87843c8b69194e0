"""Real Spark on three brokers, of which one is killed and others are restarted while it runs."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, PartitionMetadata
from support.kafka import brokers, kafka_io
from support.spark.project import PIPELINE, Project
from support.waiting import wait_until

from eos.local.embedded_kafka import EmbeddedKafka

PARTITIONS, RECORDS = 4, 51_000  # of a micro-batch at most: with a shuffle, so several tasks write
FOREVER = PIPELINE.replace("available_now: true", "every: 200 ms")
WAIT_S_MAX = 600  # a bound, not a measure


@pytest.fixture
def three(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path / "three", nodes=3) as kafka:
        yield kafka
        for node in kafka.nodes:  # nobody needs its data any more: a clean stop takes seconds
            kafka.kill(node.number)


def until_committed(process: subprocess.Popen[str], log: Path, more: int) -> None:
    """So many micro-batches more than there are."""
    enough = committed(log) + more
    wait_until(lambda: committed(log) >= enough, log.read_text, process)


def committed(log: Path) -> int:
    return log.read_text().count(" committed: ")


@contextmanager
def fed(project: Project, first: int) -> Iterator[list[int]]:
    """Some records more, again and again. Yields how many there are in the end."""
    is_over, count = threading.Event(), [first]

    def feed() -> None:
        while not is_over.wait(0.2):
            numbers = range(count[0], count[0] + 100)
            count[0] += kafka_io.fill(project.broker.bootstrap, project.source, numbers)

    with ThreadPoolExecutor(1) as pool:
        feeding = pool.submit(feed)
        try:
            yield count
        finally:
            is_over.set()
        feeding.result()


@pytest.mark.nightly  # without Spark: tests/kafka/test_three_kills.py
def test_a_kill_and_restarts_cost_no_record(tmp_path: Path, three: EmbeddedKafka) -> None:
    project = Project.made(tmp_path, three)
    bootstrap = three.bootstrap
    profile = project.profile.read_text()
    address = f'kafka: {{bootstrap: "{bootstrap}"}}'
    project.profile.write_text(re.sub("^kafka:.*", address, profile, flags=re.MULTILINE))
    project.declare(RECORDS, PARTITIONS, FOREVER)
    kafka_io.create_topics(bootstrap, PARTITIONS, project.source, replication=-1)
    kafka_io.fill(bootstrap, project.source, range(RECORDS))
    log = tmp_path / "run.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            project.command(),
            env=project.environment(),
            cwd=project.folder,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
        )
    with ended(process):
        with fed(project, RECORDS) as count:
            until_committed(process, log, 2)
        drained(project, process)  # from here on Spark asks for ends and nothing else
        first = partitions(bootstrap, project.source)[0].leader
        three.kill(first)
        with fed(project, count[0]):
            until_committed(process, log, 2)
            for node in (first, first % 3 + 1):
                three.restart(node)
                until_committed(process, log, 2)
        drained(project, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S_MAX) == 0, log.read_text()
    assert "failed" not in log.read_text()
    check(project)


def drained(project: Project, process: subprocess.Popen[str]) -> None:
    bootstrap, source = project.broker.bootstrap, project.source
    ends = kafka_io.ends(bootstrap, source)
    wait_until(
        lambda: kafka_io.group_offsets(bootstrap, project.group, source) == ends,
        "it is not drained",
        process,
    )


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        process.wait(WAIT_S_MAX)


def check(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    went_in = kafka_io.read(bootstrap, project.source)
    came_out = kafka_io.read(bootstrap, project.target)
    assert Counter((row.key, row.value) for row in came_out) == Counter(
        (row.key, row.value) for row in went_in
    )
    newest: dict[bytes | None, int] = {}
    for row in came_out:
        number = int(row.value or b"-1")
        assert newest.get(row.key, -1) < number, f"key {row.key!r}: {number} after a later one"
        newest[row.key] = number
    check_logs(project)
    for topic in (project.target, project.ledger):
        assert {len(one.replicas) for one in partitions(bootstrap, topic).values()} == {3}


def check_logs(project: Project) -> None:
    """On the first node. It may lack the last markers for a while: a replica that is in sync may
    be behind."""
    kafka_io.wait_closed(project.broker.bootstrap, project.target)
    give_up_at = time.monotonic() + 120
    while True:
        try:
            brokers.check_log(brokers.dump(project.broker, project.target))
        except AssertionError:
            if time.monotonic() > give_up_at:
                raise
        else:
            return


def partitions(bootstrap: str, topic: str) -> Mapping[int, PartitionMetadata]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return kafka_io.answered(lambda: admin.list_topics(timeout=60)).topics[topic].partitions
