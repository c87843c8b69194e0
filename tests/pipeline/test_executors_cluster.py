"""Executors of a Spark cluster that die, freeze and lose files; its workers have Python and Spark.

Each fault ends one attempt of one run. `eos` and its packages have to travel: the cluster's own
environment has neither.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from support.kafka import kafka_io
from support.machines.bare_machine import bare_environment
from support.spark.executor_faults import FaultyRun, check_never_mixed, declare
from support.spark.project import Project
from support.waiting import wait_until

from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.processes import end_with_parent

WORKERS = 2

Found = TypeVar("Found")


class Cluster:
    """`url` is its master's. Everything that belongs to it ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._closing = contextlib.ExitStack()
        self.environment = bare_environment(folder)
        self.url = ""

    def __enter__(self) -> Cluster:  # noqa: PYI034 - typing.Self begins with 3.11
        try:
            said = self._start("master.Master")
            self.url = wait_in_log(said, re.compile(r"Starting Spark master at (\S+)").search)
            for _ in range(WORKERS):
                self.start_worker()
            both = re.compile(r"(?:.*Registering worker (\S+)){2}", re.DOTALL)
            wait_in_log(said, both.search)
        except BaseException:
            self._closing.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def start_worker(self) -> None:
        """It runs one executor of an application."""
        work = self.folder / f"work-{len(self.works)}"
        work.mkdir()
        options = ["--cores", "1", "--memory", "1g", "--work-dir", str(work)]
        self._start("worker.Worker", *options, self.url)

    @property
    def python(self) -> Path:
        return self.folder / "python" / "bin" / "python"

    @property
    def works(self) -> list[Path]:
        """Each worker's folder of executors: APPLICATION/NUMBER/stderr."""
        return sorted(self.folder.glob("work-*"))

    def said_by_executors(self) -> str:
        files = (path for work in self.works for path in sorted(work.glob("*/*/stderr")))
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')}" for path in files)

    def _start(self, name: str, *options: str) -> Path:
        log = self.folder / f"{name}-{len(list(self.folder.glob('*.log')))}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    f"{self.environment['SPARK_HOME']}/bin/spark-class",
                    f"org.apache.spark.deploy.{name}",
                    *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
                    *options,
                ],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock here
            )
        self._closing.callback(_end, process)
        return log


def _end(process: subprocess.Popen[bytes]) -> None:
    """A worker that is asked to end kills its executors, too."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_in_log(log: Path, found: Callable[[str], re.Match[str] | None]) -> str:
    """The first group of what is found in a file that grows."""

    def text() -> str:
        return log.read_text(errors="replace")

    return wait_until(lambda: found(text()), lambda: text()[-5000:]).group(1)


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


@pytest.mark.nightly
def test_no_two_attempts_are_mixed_whatever_dies_on_an_executor(
    cluster: Cluster, broker: EmbeddedKafka, tmp_path: Path
) -> None:
    project = Project.made(tmp_path, broker)
    declare(project, cluster.url, RECORDS, fails_at=RECORDS // 2)  # in micro-batch 0
    kafka_io.fill(broker.bootstrap, project.source, range(COUNT))
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
