"""The jobs of the benchmarks, small: nobody runs those every day, and what they use changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.arms import run_arms
from bench.peers.compare import Comparison
from bench.peers.workloads import Workload
from support.kafka import kafka_io

from eos.local.embedded_kafka import EmbeddedKafka

SOURCE, PRODUCERS, PARTITIONS = "benches.small", 100, 4
RECORDS = 2 * PRODUCERS
# Arms that are alike but for settings are left out.
JOBS = {
    "small_job.py": ["eos", "spark", "spark_files"],
    "cold_job.py": ["eos"],
    "rows_job.py": ["none", "arrow", "pandas_sql"],
    "dedup_job.py": ["without", "partition", "json_producer"],
}
# What only that job tells of its first arm's turn.
TOLD = {
    "small_job.py": {"steps_ms", "jvm_calls"},
    "cold_job.py": {"committed_s", "committed_cpu_s"},
    "dedup_job.py": {"known_seconds", "known_cpu_seconds"},
}


@pytest.fixture(scope="module")
def source(broker: EmbeddedKafka) -> str:
    """Fits all jobs: JSON, and each producer's first record before each one's second."""
    kafka_io.create_topics(broker.bootstrap, PARTITIONS, SOURCE)
    producer = kafka_io.producer(broker.bootstrap)
    value = b'{"id": %d, "customer": "c", "amount": 12.5, "note": "none"}'
    for sequence in (b"0", b"1"):
        for number in range(PRODUCERS):
            headers = [("p", b"producer-%d" % number), ("e", b"0"), ("s", sequence)]
            place = number % PARTITIONS
            producer.produce(SOURCE, value % number, partition=place, headers=headers)
    assert producer.flush(60) == 0
    return SOURCE


@pytest.mark.timeout(300)
@pytest.mark.nightly
@pytest.mark.parametrize("script", JOBS)
def test_every_arm_runs(script: str, source: str, broker: EmbeddedKafka, tmp_path: Path) -> None:
    arms = JOBS[script]
    given: dict[str, Any] = {"partitions": PARTITIONS, "script": script}
    runs = run_arms(broker, tmp_path, source, arms, PRODUCERS, 0, 280, **given)
    assert [run["arm"] for run in runs] == arms
    for run in runs:
        assert run["records"] == RECORDS, run
    assert TOLD.get(script, set()) <= set(runs[0])


# Those that nothing has to be fetched for, at two kinds of work that share little code.
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["json", "delta"])
def test_peers_run(kind: str, broker: EmbeddedKafka, tmp_path: Path) -> None:
    peers = ("eos", "spark_tuned", "confluent") if kind == "json" else ("eos", "spark")
    workload = Workload(f"small_{kind}", "", kind, RECORDS, PRODUCERS, peers=peers)
    runs = Comparison(workload, broker, tmp_path).runs(1)
    assert sorted(run["peer"] for run in runs) == sorted(peers)
    for run in runs:
        assert not run.get("failed"), run["failed"]
        assert not run["wrong"]
