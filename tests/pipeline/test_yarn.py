"""Pipelines on a real YARN, whose nodes have Java, Spark and a Python without packages."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import kafka_io
from support.project import Project
from support.yarn import Yarn, yarn

from eos.launch import spark
from eos.local.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.long

COUNT = 2_000
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
    made = Project.made(tmp_path, broker)
    text = made.profile.read_text().replace("local[2]", "yarn")
    text = text.replace(str(tmp_path / "state"), f"hdfs://{cluster.store.address}/eos")
    more = CONF.format(jars=spark.find_spark().home / "jars")
    made.profile.write_text(f"{text}{more}\ndeployment: {made.name}\n")
    made.declare(records=500)
    kafka_io.create_topics(broker.bootstrap, 2, made.source)
    return made


def run(project: Project, cluster: Yarn, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*project.command(), *options],
        env=project.environment(HADOOP_CONF_DIR=str(cluster.conf)),
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def check(project: Project, count: int) -> None:
    found = Counter(row.value for row in kafka_io.read(project.broker.bootstrap, project.target))
    assert found == Counter(b"%d" % number for number in range(count))


def test_client_mode(project: Project, cluster: Yarn) -> None:
    kafka_io.fill(project.broker.bootstrap, project.source, range(COUNT))
    done = run(project, cluster)
    assert done.returncode == 0, done.stderr
    check(project, COUNT)
    application = cluster.application(project.name)
    assert application["finalStatus"] == "SUCCEEDED"
