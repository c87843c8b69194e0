"""SIGKILL at every step of a micro-batch, for every victim: each record comes out exactly once.

One pipeline a victim. Each run of it dies at the next point, the last one drains the source.
What a stranger then finds must be what went in, whatever happened between. The pipelines share
nothing but the broker, so they run side by side.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from support import outside
from support.brokers import Kafka
from support.project import Project

from eos.deadline import Deadline
from eos.faults import MOMENTS, POINTS
from eos.launch import spark
from eos.launch.java import find_java

# Small micro-batches run as one task, large ones with a shuffle: both ways must survive.
SIZES = {"python": 500, "jvm": 500, "both": 51_000}
# Enough micro-batches for every run that dies after its commit. A driver whose JVM alone dies goes
# on until it notices, and may commit at any point.
COUNTS = {"python": 10, "jvm": 18, "both": 9}
PARTITIONS = 4
ARCHIVE_MS_MAX = 120_000


@pytest.fixture(scope="module")
def crashed(
    broker: Kafka, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Project]]:
    """The pipeline of a victim, once all its runs are over. Those of all tests begin at once."""
    tests = [item for item in request.session.items if "crashed" in item.fixturenames]
    victims = [test.callspec.params["victim"] for test in tests]
    archive_spark(Project.made(tmp_path_factory.mktemp("archive"), broker))
    given_up = threading.Event()
    with ThreadPoolExecutor(len(victims)) as pool:
        runs: dict[str, Future[Project]] = {}
        for victim in victims:
            project = Project.made(tmp_path_factory.mktemp(victim), broker)
            runs[victim] = pool.submit(crash_everywhere, project, victim, given_up)
        yield lambda victim: runs[victim].result()
        given_up.set()


def archive_spark(project: Project) -> None:
    """Fifty starts of Spark follow. Only a run that ends well leaves them its class-data archive,
    which saves each a third of its time; they do without where it is not made soon."""
    found = spark.find_spark()
    words = spark.command(found, [], "local", {}, [], project.folder, project.folder)
    archive = spark.archive(found, find_java(), "local", words)
    if archive is None or archive.options():
        return
    filled(project, "python")
    done = project.run()
    assert done.returncode == 0, done.stderr
    enough = Deadline.after_ms(ARCHIVE_MS_MAX)
    while not archive.options() and not enough.has_passed:
        time.sleep(0.5)


def crash_everywhere(project: Project, victim: str, given_up: threading.Event) -> Project:
    filled(project, victim)
    for point in POINTS:
        for moment in MOMENTS:
            assert not given_up.is_set()
            log = project.folder / f"{point}.{moment}"
            died = project.run(EOS_CRASH_AT=f"{point}:{moment}:{victim}", EOS_CRASH_LOG=str(log))
            assert died.returncode != 0, died.stderr
            assert log.exists(), f"{point}:{moment} was not reached:\n{died.stderr}"
    last = project.run()
    assert last.returncode == 0, last.stderr
    return project


def filled(project: Project, victim: str) -> None:
    records = SIZES[victim]
    project.declare(records, PARTITIONS)
    outside.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    outside.fill(project.broker.bootstrap, project.source, range(records * COUNTS[victim]))


@pytest.mark.timeout(1800)  # three times seventeen runs of spark-submit
@pytest.mark.parametrize("victim", ["python", "jvm", "both"])
def test_every_record_once_in_order_whatever_dies_when(
    crashed: Callable[[str], Project], victim: str
) -> None:
    project = crashed(victim)
    check_exactly_once(project)
    check_logs(project)
    check_group_offsets(project)
    check_verified(project)


def check_exactly_once(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    went_in = outside.read(bootstrap, project.source)
    came_out = outside.read(bootstrap, project.target)
    assert Counter((row.key, row.value) for row in came_out) == Counter(
        (row.key, row.value) for row in went_in
    )
    # The numbers of a key were written in ascending order, and a key keeps its partition.
    newest: dict[bytes | None, int] = {}
    home: dict[bytes | None, int] = {}
    for row in came_out:
        number = int(row.value or b"-1")
        assert newest.get(row.key, -1) < number, f"key {row.key!r}: {number} after a later one"
        assert home.setdefault(row.key, row.partition) == row.partition
        newest[row.key] = number
    attempted = outside.read(bootstrap, project.target, "read_uncommitted")
    assert len(attempted) > len(came_out), "no crash left a half-written transaction behind"


def check_logs(project: Project) -> None:
    markers = outside.check_topic(project.broker, project.target)
    assert markers["COMMIT"] > 0
    assert markers["ABORT"] > 0
    ledger = outside.check_topic(project.broker, project.ledger)
    # One record and one marker for each: the starts, the attempts, the clean end.
    records = outside.read(project.broker.bootstrap, project.ledger)
    assert ledger["COMMIT"] == len(records)


def check_group_offsets(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    assert outside.group_offsets(bootstrap, project.group, project.source) == outside.ends(
        bootstrap, project.source
    )


def check_verified(project: Project) -> None:
    """What died is out of sight, and nothing that is left contradicts anything else."""
    done = subprocess.run(
        [sys.executable, "-m", "eos", "verify", *project.words(), "--json"],
        env=project.environment(),
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert told["findings"] == []
    assert "transactions" in told["same"]
