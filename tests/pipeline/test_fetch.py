"""`eos fetch` downloads all that a run needs, and the run downloads nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.kafka import kafka_io
from support.spark.project import Project

from eos.launch.spark import find_spark
from eos.local.jars import of_broker, read_lock

pytestmark = pytest.mark.long


@pytest.mark.nightly
def test_a_run_on_a_fetched_cache_needs_no_network(project: Project, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "eos", "fetch", "--json"]
    fetched = subprocess.run(
        command,
        env=project.environment(XDG_CACHE_HOME=str(cache)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert fetched.returncode == 0, fetched.stderr
    found = json.loads(fetched.stdout)
    assert (Path(found["java"]["home"]) / "bin" / "java").exists()
    sets = {*find_spark().jar_sets(with_delta=True), *of_broker()}
    wanted = {jar.name for jar in read_lock() if jar.purpose in sets}
    folder = Path(found["jars"]["folder"])
    assert folder == cache / "spark-eos" / "jars"
    assert wanted <= {path.name for path in folder.iterdir()}
    assert Path(found["native"]["path"]).is_relative_to(cache)

    project.declare(10)
    kafka_io.create_topics(project.broker.bootstrap, 2, project.source)
    kafka_io.fill(project.broker.bootstrap, project.source, range(20))
    done = project.run(XDG_CACHE_HOME=str(cache), EOS_OFFLINE="")
    assert done.returncode == 0, done.stderr

    next(folder.glob("*spark-sql-kafka*.jar")).unlink()
    refused = project.run(XDG_CACHE_HOME=str(cache), EOS_OFFLINE="")
    assert refused.returncode == 2, refused.stderr
    assert "[download_forbidden]" in refused.stderr
    assert "`eos fetch`" in refused.stderr
