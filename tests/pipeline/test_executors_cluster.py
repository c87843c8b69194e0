"""Executors of a Spark cluster that die, freeze and lose files; its workers have Python and Spark.

Each fault ends one attempt of one run. `eos` and its packages have to travel: the cluster's own
environment has neither.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import outside
from support.cluster import Cluster
from support.faulty import FaultyRun, check_never_mixed, declared
from support.project import Project

from eos.local.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.long

RECORDS = 51_000  # of a micro-batch: more than are done in one task
FROZEN = "3/first_produce:before:frozen"
FAULTS = [
    "1/encode:after:worker",
    "1/encode:after:executor",
    "2/first_produce:after:worker",
    "2/written:after:executor",
    "3/first_produce:after:shuffle",
    FROZEN,
]
# Spark doesn't count a task that is lost with its machine as failed: it repeats the task, and not
# the job. An encode task may be repeated. A writer refuses: here in a micro-batch of one task,
# since with a shuffle its input is lost, too.
REPEATED, REFUSED = "4/encode:after:machine", "5/written:after:machine"
COUNT = 5 * RECORDS + 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_the_workers_know_nothing_of_this_project(cluster: Cluster) -> None:
    for package in ("eos", "pyarrow", "kafka", "pandas"):
        done = subprocess.run(
            [cluster.python, "-c", f"import {package}"],
            env=cluster.environment,
            cwd=cluster.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "ModuleNotFoundError" in done.stderr


def test_no_two_attempts_are_mixed_whatever_dies_on_an_executor(
    cluster: Cluster, broker: EmbeddedKafka, tmp_path: Path
) -> None:
    project = Project.made(tmp_path, broker)
    declared(project, cluster.url, RECORDS, fails_at=RECORDS // 2)  # in micro-batch 0
    outside.fill(broker.bootstrap, project.source, range(COUNT))
    with FaultyRun(project, [*FAULTS, REPEATED, REFUSED]) as run:
        run.wake_after(FROZEN)
        run.wait_for(REPEATED)
        cluster.start_worker()
        assert run.wait() == 0, run.said() + cluster.said_by_executors()
        run.check_each_struck([*FAULTS, REFUSED])
        assert "micro-batch 4, attempt" not in run.said()
        assert run.said().count("writer task attempt 1: an earlier attempt may have sent") == 1
        assert run.said().count("ValueError: it fails once") == 1
    check_never_mixed(project, COUNT)
