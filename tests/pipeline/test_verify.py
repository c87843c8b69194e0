"""`eos verify` of what Spark wrote, as a person calls it; `test_crashes.py` calls it, too."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.kafka import kafka_io
from support.spark.spark_recovery import SparkPipeline

pytestmark = pytest.mark.spark


def verify(past: SparkPipeline, *words: str) -> subprocess.CompletedProcess[str]:
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
    past = SparkPipeline(project, {project.source: 2}).ran(3)
    done = verify(past, "--json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    written = sum(each["records"] for each in told["targets"].values())
    assert written == len(list(past.expected.elements()))
    assert {"group offsets", "transactions", "checkpoint"} <= set(told["same"])

    row = kafka_io.read(past.bootstrap, project.target)[-1]
    end = kafka_io.ends(past.bootstrap, project.target)[row.partition]
    producer = kafka_io.producer(past.bootstrap)
    producer.produce(project.target, row.value, row.key, row.partition)
    assert producer.flush(300) == 0
    done = verify(past)
    assert done.returncode == 1, done
    witness = f"smallest witness: foreign, topic {project.target}, partition {row.partition}, "
    assert f"{witness}offset {end}, of no attempt" in done.stdout
