"""`eos plan --check` as a user runs it: the cluster, the audit table and a Spark of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support import outside
from support.brokers import Kafka
from support.project import RUN_S_MAX, Project

STATEFUL = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
transform: [{{sql: "SELECT key, max(value) AS value FROM input GROUP BY key"}}]
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
"""


def test_what_spark_would_refuse_is_found_beside_what_the_cluster_has(
    broker: Kafka, tmp_path: Path
) -> None:
    project = Project.made(tmp_path, broker)
    project.declare(10, text=STATEFUL)
    outside.create_topics(broker.bootstrap, 2, project.source)
    command = [sys.executable, "-m", "eos", "plan", *project.words(), "--check", "--json"]
    done = subprocess.run(
        command,
        env=project.environment(NO_COLOR="1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    found = {each["what"]: each for each in told["checks"] if each["level"] == "finding"}
    assert set(found) == {"spark"}, found
    assert "Spark refuses the transforms as a stream" in found["spark"]["says"]
    assert found["spark"]["remedy"]
    assert {each["what"] for each in told["checks"]} >= {"features", "source", "target", "start"}
    assert [each["stage"] for each in told["stages"]][:2] == ["source", "step 1"]
    assert "Traceback" not in done.stderr
