"""The image of conf/deploy: another user, a root file system without writes, and no downloads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.docs import ROOT
from support.kafka import kafka_io
from support.machines.image import Engine
from support.spark.project import Project

from eos.local.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.nightly

TAG = "localhost/eos-image:test"
COUNT = 2_000


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    found = Engine.found()
    assert found is not None, "conftest.py leaves these tests out"
    found.build(tmp_path_factory.mktemp("image") / "context", TAG)
    yield found
    found.call("rmi", "--force", TAG)


def test_the_quickstart_runs_without_a_network(engine: Engine, tmp_path: Path) -> None:
    """With the embedded broker, as user 10001, on a root file system that can't be written."""
    tmp_path.chmod(0o755)
    (tmp_path / "quick.yaml").write_text("state: {root: /state}\n")
    folders = [
        *("--volume", f"{ROOT / 'pipelines'}:/opt/project/pipelines:ro"),
        *("--volume", f"{tmp_path}:/etc/eos:ro"),
    ]
    pipeline = ("run", "pipelines/quickstart/pipeline.yaml", "--profile", "/etc/eos/quick.yaml")
    done = engine.run(TAG, ["--network", "none", *folders], *pipeline, "--json")
    assert done.returncode == 0, done.stdout
    result = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert result["duplicates"] == result["lost"] == 0
    assert result["records_out"] == 100_000


def test_it_is_no_root_and_can_write_nothing(engine: Engine) -> None:
    script = "id -u; touch /opt/eos/x; touch /opt/project/x; touch /tmp/x && echo wrote"
    done = engine.run(TAG, ["--entrypoint", "/bin/sh"], "-c", script)
    assert done.stdout.splitlines()[0] == "10001"
    assert done.stdout.count("Read-only file system") == 2
    assert done.stdout.splitlines()[-1] == "wrote"


def test_a_driver_starts_as_the_spark_operator_starts_it(
    engine: Engine, tmp_path: Path, broker: EmbeddedKafka
) -> None:
    """By spark-submit, without `eos run`: jars and packages are those of the image."""
    project = Project.made(tmp_path, broker)
    project.declare(records=500)
    kafka_io.create_topics(broker.bootstrap, 2, project.source)
    kafka_io.fill(broker.bootstrap, project.source, range(COUNT))
    text = project.profile.read_text().replace(str(tmp_path / "state"), "/state")
    project.profile.write_text(text)
    tmp_path.chmod(0o755)
    options = ["--network", "host", "--volume", f"{tmp_path}:/opt/project:ro"]
    options += ["--env", "SPARK_DRIVER_BIND_ADDRESS=127.0.0.1"]
    words = ["driver", "--master", "local[2]", "--conf", "spark.driver.host=127.0.0.1"]
    pipeline = f"pipelines/{project.name}/pipeline.yaml"
    words += ["local:///opt/eos/run.py", pipeline, "--profile", "conf/test.yaml"]
    done = engine.run(TAG, options, *words)
    assert done.returncode == 0, done.stdout
    found = Counter(row.value for row in kafka_io.read(broker.bootstrap, project.target))
    assert found == Counter(b"%d" % number for number in range(COUNT))
