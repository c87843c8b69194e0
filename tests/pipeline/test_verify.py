"""`eos verify` of what Spark wrote, as a person calls it; `test_crashes.py` calls it, too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Producer
from support import outside
from support.past import Past

pytestmark = pytest.mark.spark


def verify(past: Past, *words: str) -> subprocess.CompletedProcess[str]:
    project = past.project
    return subprocess.run(
        [sys.executable, "-m", "eos", "verify", *project.words(), *words],
        env=project.environment(),
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_pipeline_is_proven_and_a_copied_record_is_found(project):
    past = Past(project, {project.source: 2}).ran(3)
    done = verify(past, "--json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    written = sum(each["records"] for each in told["targets"].values())
    assert written == len(list(past.expected.elements()))
    assert {"group offsets", "transactions", "checkpoint"} <= set(told["same"])

    row = outside.read(past.bootstrap, project.target)[-1]
    end = outside.ends(past.bootstrap, project.target)[row.partition]
    producer = Producer({**outside.IN_ORDER, "bootstrap.servers": past.bootstrap, "log_level": 3})
    producer.produce(project.target, row.value, row.key, row.partition)
    assert producer.flush(300) == 0
    done = verify(past)
    assert done.returncode == 1, done
    witness = f"smallest witness: foreign, topic {project.target}, partition {row.partition}, "
    assert f"{witness}offset {end}, of no attempt" in done.stdout
