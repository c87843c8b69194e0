"""SIGKILL at every step of a micro-batch, for every victim: each record comes out exactly once.

A pipeline for each row of DEATHS. Each run of it dies at the next point, the last one drains the
source. What a stranger then finds must be what went in, whatever happened between. The pipelines
share nothing but the broker, so they run side by side.

Before and after each step all of a run dies; and one of its two processes, which of them in turn.
The other turns are among what takes long.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from support import outside
from support.brokers import Kafka
from support.project import Project

from eos.faults import MOMENTS, POINTS

# Small micro-batches run as one task, large ones with a shuffle: both ways must survive.
SIZES = {"python": 500, "jvm": 500, "both": 51_000}
# Enough micro-batches for every run that dies after its commit. A driver whose JVM alone dies goes
# on until it notices, and may commit at any point.
COUNTS = {"python": 6, "jvm": 10, "both": 8}
PARTITIONS = 4


def in_turn(first: int) -> list[str]:
    """One moment of each step: before the first, after the second, or the other way round."""
    return [f"{point}:{MOMENTS[(n + first) % 2]}" for n, point in enumerate(POINTS)]


DEATHS = {
    "both": ("both", [f"{point}:{moment}" for point in POINTS for moment in MOMENTS]),
    "python": ("python", in_turn(1)),
    "jvm": ("jvm", in_turn(0)),
    "python in the other turn": ("python", in_turn(0)),
    "jvm in the other turn": ("jvm", in_turn(1)),
}


@pytest.fixture(scope="module")
def crashed(
    broker: Kafka, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Project]]:
    """The pipeline of these deaths, once its runs are over. Those of all tests begin at once."""
    tests = [item for item in request.session.items if "crashed" in item.fixturenames]
    wanted = [test.callspec.params["deaths"] for test in tests]
    given_up = threading.Event()
    with ThreadPoolExecutor(len(wanted)) as pool:
        runs: dict[str, Future[Project]] = {}
        for deaths in wanted:
            project = Project.made(tmp_path_factory.mktemp("crashed"), broker)
            runs[deaths] = pool.submit(crash_everywhere, project, *DEATHS[deaths], given_up)
        yield lambda deaths: runs[deaths].result()
        given_up.set()


def crash_everywhere(
    project: Project, victim: str, points: Sequence[str], given_up: threading.Event
) -> Project:
    filled(project, victim)
    for point in points:
        assert not given_up.is_set()
        log = project.folder / point.replace(":", ".")
        died = project.run(EOS_CRASH_AT=f"{point}:{victim}", EOS_CRASH_LOG=str(log))
        assert died.returncode != 0, died.stderr
        assert log.exists(), f"{point} was not reached:\n{died.stderr}"
    last = project.run()
    assert last.returncode == 0, last.stderr
    return project


def filled(project: Project, victim: str) -> None:
    records = SIZES[victim]
    project.declare(records, PARTITIONS)
    outside.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    outside.fill(project.broker.bootstrap, project.source, range(records * COUNTS[victim]))


@pytest.mark.timeout(1800)  # up to seventeen runs of spark-submit, beside others
@pytest.mark.parametrize(
    "deaths",
    [pytest.param(name, marks=pytest.mark.long if "other" in name else ()) for name in DEATHS],
)
def test_every_record_once_in_order_whatever_dies_when(
    crashed: Callable[[str], Project], deaths: str
) -> None:
    project = crashed(deaths)
    check_exactly_once(project)
    check_logs(project)
    victim, points = DEATHS[deaths]
    if victim != "jvm" or "first_produce:after" in points:  # else its driver may commit them all
        check_left_half(project)
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


def check_left_half(project: Project) -> None:
    """A crash left a half-written transaction behind: that was a test of more than starts."""
    bootstrap = project.broker.bootstrap
    attempted = outside.read(bootstrap, project.target, "read_uncommitted")
    assert len(attempted) > len(outside.read(bootstrap, project.target))
    assert outside.check_topic(project.broker, project.target)["ABORT"] > 0


def check_logs(project: Project) -> None:
    assert outside.check_topic(project.broker, project.target)["COMMIT"] > 0
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
