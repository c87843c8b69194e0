"""Pipelines on a real YARN, whose nodes have Java, Spark and a Python without packages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import pytest
from support.kafka import kafka_io
from support.machines.yarn import Yarn, yarn
from support.spark import processes
from support.spark.project import PIPELINE, Project
from support.waiting import WAIT_S_MAX, wait_until

from eos.launch import spark
from eos.local.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.long

Found = TypeVar("Found")
COUNT = 2_000
IN_CLUSTER = ("--deploy-mode", "cluster")
CONF = """
    spark.yarn.jars: "local:{jars}/*"
    spark.executor.instances: 1
    spark.executor.memory: 1g
    spark.yarn.submit.file.replication: 1
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("yarn")) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path, broker: EmbeddedKafka, cluster: Yarn) -> Project:
    return made(tmp_path, broker, cluster)


def made(folder: Path, broker: EmbeddedKafka, cluster: Yarn) -> Project:
    """A pipeline whose state root is in the cluster's HDFS."""
    project = Project.made(folder, broker)
    text = project.profile.read_text().replace("local[2]", "yarn")
    text = text.replace(str(folder / "state"), f"hdfs://{cluster.store.address}/eos")
    for key in ("host", "bindAddress"):  # a driver in the cluster has an address of its own
        text = text.replace(f"    spark.driver.{key}: 127.0.0.1\n", "")
    more = CONF.format(jars=spark.find_spark().home / "jars")
    project.profile.write_text(f"{text}{more}\ndeployment: {project.name}\n")
    project.declare(records=500)
    kafka_io.create_topics(broker.bootstrap, 2, project.source)
    return project


class Run:
    """A run of the launcher, as long as it is entered."""

    def __init__(self, project: Project, cluster: Yarn, *options: str, **variables: str) -> None:
        self.project, self.cluster = project, cluster
        words = list(options)
        for name, text in variables.items():
            words += ["--conf", f"spark.yarn.appMasterEnv.{name}={text}"]
        self._log = project.folder / f"run-{len(list(project.folder.glob('run-*')))}.log"
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                [*project.command(), *words],
                env=project.environment(HADOOP_CONF_DIR=str(cluster.conf)),
                cwd=project.folder,
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Run:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """What launcher and containers wrote."""
        found = self._log.read_text()[-20_000:]
        for each in self.cluster.applications(self.project.name):
            found += self.cluster.said_by(each["id"])[-20_000:]
        return found

    def until(self, is_met: Callable[[], Found]) -> Found:
        return wait_until(is_met, self.said, self._process, 2 * WAIT_S_MAX)

    def wait(self) -> int:
        return self._process.wait(2 * WAIT_S_MAX)


def check(project: Project, count: int) -> None:
    found = Counter(row.value for row in kafka_io.read(project.broker.bootstrap, project.target))
    assert found == Counter(b"%d" % number for number in range(count))


@pytest.mark.nightly
def test_the_driver_runs_here(project: Project, cluster: Yarn) -> None:
    kafka_io.fill(project.broker.bootstrap, project.source, range(COUNT))
    # This machine's address, since nothing else listens there.
    with Run(project, cluster, "--conf", "spark.driver.host=127.0.0.1") as run:
        assert run.wait() == 0, run.said()
    check(project, COUNT)
    assert cluster.application(project.name)["finalStatus"] == "SUCCEEDED"


def test_the_driver_runs_in_the_cluster(project: Project, cluster: Yarn) -> None:
    kafka_io.fill(project.broker.bootstrap, project.source, range(COUNT))
    with Run(project, cluster, *IN_CLUSTER) as run:
        assert run.wait() == 0, run.said()
        found = cluster.application(project.name)
        assert f"submitted as {found['id']}" in run.said()
    check(project, COUNT)
    assert found["finalStatus"] == "SUCCEEDED"
    assert cluster.attempts(found["id"]) == 1


class Standing:
    """A driver in the cluster that is paused in the middle of its first transaction."""

    PLAN = MappingProxyType(
        {"EOS_CRASH_AT": "ledger_record:after:python", "EOS_CRASH_SIGNAL": "STOP"}
    )

    def __init__(self, project: Project) -> None:
        self._log = project.folder / "paused"
        self.variables = {**self.PLAN, "EOS_CRASH_LOG": str(self._log)}
        self.driver = 0

    def wait(self, run: Run) -> None:
        run.until(lambda: self._log.exists() and self._log.read_text().endswith("\n"))
        self.driver = int(self._log.read_text().split()[1])
        run.until(lambda: processes.is_paused(self.driver))


@pytest.mark.nightly
def test_a_killed_application_master_resumes_by_the_ledger(project: Project, cluster: Yarn) -> None:
    """Driver and JVM are killed in the middle of a transaction. YARN starts both again."""
    kafka_io.fill(project.broker.bootstrap, project.source, range(COUNT))
    standing = Standing(project)
    with Run(project, cluster, *IN_CLUSTER, **standing.variables) as run:
        standing.wait(run)
        for process in (processes.parent(standing.driver), standing.driver):
            os.kill(process, signal.SIGKILL)
        assert run.wait() == 0, run.said()
    check(project, COUNT)
    found = cluster.application(project.name)
    assert (found["finalStatus"], cluster.attempts(found["id"])) == ("SUCCEEDED", 2)
    ledger = kafka_io.read(project.broker.bootstrap, project.ledger)
    records = [json.loads(row.value or b"") for row in ledger]
    assert {each["owner"]["application"] for each in records} == {found["id"]}
    starts = {each["owner"]["process"] for each in records if each["kind"] == "start"}
    assert len(starts - {standing.driver}) == 1


@pytest.mark.nightly
def test_a_fenced_application_takes_nothing_back(project: Project, cluster: Yarn) -> None:
    """YARN starts it again after exit 3, too. Its status names the exit code."""
    project.declare(records=500, text=PIPELINE.replace("trigger: {{available_now: true}}\n", ""))
    kafka_io.fill(project.broker.bootstrap, project.source, range(COUNT))
    standing = Standing(project)
    with Run(project, cluster, *IN_CLUSTER, **standing.variables) as run:
        standing.wait(run)
        # An instance of the same deployment, which a person has started here: it fences at once.
        local = ("--master", "local[2]", "--conf", "spark.driver.host=127.0.0.1")
        with Run(project, cluster, *local) as other:
            other.until(lambda: len(list(_rows(project))) == COUNT)
            os.kill(standing.driver, signal.SIGCONT)
            assert run.wait() == 3, run.said()
            found = cluster.application(project.name)
            said = cluster.said_by(found["id"])
            assert cluster.attempts(found["id"]) == 2, said
            assert "[replaced_before_restart]" in said
            kafka_io.fill(project.broker.bootstrap, project.source, range(COUNT, COUNT + 10))
            other.until(lambda: len(list(_rows(project))) == COUNT + 10)  # it was not disturbed
    check(project, COUNT + 10)
    status = cluster.command("application", "-status", found["id"]).stdout
    assert "Final-State : FAILED" in status
    assert "User application exited with status 3" in status


def _rows(project: Project) -> Iterator[Any]:
    return kafka_io.read(project.broker.bootstrap, project.target)
