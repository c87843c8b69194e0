"""SIGKILL at every step of a micro-batch, for every victim: each record comes out exactly once.

A pipeline for each row of DEATHS. Each run of it dies at the next point, the last one drains the
source. What a stranger then finds must be what went in, whatever happened between. The pipelines
share nothing but the broker, so they run side by side.

At each step, before it or after it in turn, one of a run's two processes dies, which of them in
turn, too; and at the other moment of every fourth step all of it. The nightly run has the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import pytest
from support.copies import audit
from support.copies.recovery import soon
from support.kafka import brokers, kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import PIPELINE, Project

from eos.audit.projection import Projection
from eos.audit.table import TransactionsTable
from eos.faults import MOMENTS, POINTS
from eos.inspect.producers_live import RowStatus
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings

# Small micro-batches run as one task, large ones with a shuffle. If the records do not enter the
# JVM, the driver writes small ones itself, and tasks exchange files for large ones. Each way must
# survive.
SMALL, LARGE = 500, 51_000
IN_PYTHON = PIPELINE.replace("transform:\n", "").replace(
    '  - {{python: "pipelines.{module}.transform:passed_on"}}\n', ""
)
# The same path with a step, which Arrow computes.
ON_ARROW = PIPELINE.replace(
    '{{python: "pipelines.{module}.transform:passed_on"}}',
    "sql: SELECT * FROM input WHERE value IS NOT NULL",
)
PARTITIONS = 4
EVERYWHERE = [f"{point}:{moment}" for point in POINTS for moment in MOMENTS]
IN_TURN = [
    f"{point}:{MOMENTS[number // 2 % 2]}:{('python', 'jvm')[number % 2]}"
    for number, point in enumerate(POINTS)
]

# A driver whose JVM dies goes on: it commits what it writes itself.
IN_DRIVER = [
    "first_produce:after:python",
    "first_produce:before:jvm",
    "all_acked:before:both",
    "end_txn_sent:after:python",
]


@dataclass(frozen=True)
class Deaths:
    """Where and who. Enough micro-batches for every run that dies after its commit: a driver whose
    JVM alone dies goes on until it notices, and may commit at any point."""

    points: Sequence[str]
    records: int
    micro_batches: int
    pipeline: str = PIPELINE


def others(victim: str) -> list[str]:
    return [each for each in (f"{at}:{victim}" for at in EVERYWHERE) if each not in IN_TURN]


AT_THE_OTHER = [
    f"{point}:{MOMENTS[1 - number // 2 % 2]}:both"
    for number, point in enumerate(POINTS)
    if number % 4 == 1
]
DEATHS = {
    "all of it": Deaths(AT_THE_OTHER, LARGE, 6, ON_ARROW),
    "one of two": Deaths(IN_TURN, SMALL, 10),
    "in the driver": Deaths(IN_DRIVER, SMALL, 7, IN_PYTHON),
    "all of it, else": Deaths([at for at in others("both") if at not in AT_THE_OTHER], LARGE, 7),
    "python": Deaths(others("python"), SMALL, 8, IN_PYTHON),
    "jvm": Deaths(others("jvm"), SMALL, 14),
}
RARELY = {"all of it": pytest.mark.long}
RARELY |= dict.fromkeys(("all of it, else", "python", "jvm"), pytest.mark.nightly)


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
            runs[deaths] = pool.submit(crash_everywhere, project, DEATHS[deaths], given_up)
        yield lambda deaths: runs[deaths].result()
        given_up.set()


def crash_everywhere(project: Project, deaths: Deaths, given_up: threading.Event) -> Project:
    project.declare(deaths.records, PARTITIONS, deaths.pipeline)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    records = range(deaths.records * deaths.micro_batches)
    kafka_io.fill(project.broker.bootstrap, project.source, records)
    for point in deaths.points:
        assert not given_up.is_set()
        log = project.folder / point.replace(":", ".")
        died = project.run(EOS_CRASH_AT=point, EOS_CRASH_LOG=str(log))
        assert died.returncode != 0, died.stderr
        assert log.exists(), f"{point} was not reached:\n{died.stderr}"
        check_producers(project)
    last = project.run()
    assert last.returncode == 0, last.stderr
    assert check_producers(project) <= {RowStatus.SAME, RowStatus.UNKNOWN}
    return project


@pytest.mark.long
@pytest.mark.timeout(1800)  # up to fourteen runs of spark-submit, beside others
@pytest.mark.parametrize(
    "deaths",
    [pytest.param(name, marks=RARELY.get(name, ())) for name in DEATHS],
)
def test_every_record_once_in_order_whatever_dies_when(
    crashed: Callable[[str], Project], deaths: str
) -> None:
    project = crashed(deaths)
    check_exactly_once(project)
    check_logs(project)
    check_group_offsets(project)
    check_verified(project)


def check_producers(project: Project) -> set[RowStatus]:
    """The table of producer states has what the leaders have, once it has caught up with what the
    dead process had committed."""
    location = project.folder / "state" / "audit" / "transactions"
    with closing(KafkaClient(KafkaSettings((project.broker.bootstrap,)))) as client:
        names = project.name, project.ledger
        Projection(TransactionsTable(location), client, *names).catch_up(soon())
        return set(audit.check_producers(client, location, *names, project.group).values())


def check_exactly_once(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    went_in = kafka_io.read(bootstrap, project.source)
    came_out = kafka_io.read(bootstrap, project.target)
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
    attempted = kafka_io.read(bootstrap, project.target, "read_uncommitted")
    assert len(attempted) > len(came_out), "no crash left a half-written transaction behind"


def check_logs(project: Project) -> None:
    markers = brokers.check_topic(project.broker, project.target)
    assert markers["COMMIT"] > 0
    assert markers["ABORT"] > 0
    ledger = brokers.check_topic(project.broker, project.ledger)
    # One record and one marker for each: the starts, the attempts, the clean end.
    records = kafka_io.read(project.broker.bootstrap, project.ledger)
    assert ledger["COMMIT"] == len(records)


def check_group_offsets(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    assert kafka_io.group_offsets(bootstrap, project.group, project.source) == kafka_io.ends(
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
