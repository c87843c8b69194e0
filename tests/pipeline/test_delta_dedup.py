"""Dedup next to Delta tables: a table that is caught up drops the same duplicates as the topic."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.delta import lake
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import KILLED, Project, WarmDriver

RECORDS = 20  # a micro-batch
RESENT = 7  # each number is sent again after so many others, in this micro-batch or a later one
DEDUP = (
    "dedup: {{scope: SCOPE, "
    "producer: {{id: header(producer), epoch: header(epoch), sequence: header(sequence)}}}}"
)
PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
DEDUP
transform:
  - sql: SELECT *, CAST(CAST(value AS STRING) AS INT) AS n FROM input
sink:
  KAFKA
  delta:
    - {{path: FOLDER/lake/all, columns: [n, partition]}}
    - {{path: FOLDER/lake/last, mode: merge, keys: [partition], columns: [n, partition]}}
trigger: {{available_now: true}}
"""
TOPIC = "kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}"
DIES_AT = (
    "tables:before",
    "producers:after",
    "tables:before",
    "tables:after",
    "end_txn_sent:after",
)


@pytest.fixture
def made(tmp_path: Path, broker: Kafka, with_delta: WarmDriver) -> Project:
    project = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, lake.PARTITIONS, project.source)
    return project


def declare(project: Project, scope: str, kafka: str, dedup: str = DEDUP) -> None:
    lake.declare(project, RECORDS, PIPELINE, DEDUP=dedup, SCOPE=scope, KAFKA=kafka)


def feed(project: Project, numbers: Iterable[int]) -> None:
    """Send each number to each partition, in order, and again RESENT numbers later."""
    producer = kafka_io.producer(project.broker.bootstrap)
    for number in numbers:
        for sent in (number, number - RESENT):
            for partition in range(lake.PARTITIONS if sent >= 0 else 0):
                stamp = {"producer": f"app-{partition}", "epoch": 0, "sequence": sent}
                headers = [(key, str(value)) for key, value in stamp.items()]
                value = b"%d" % sent
                producer.produce(project.source, value, partition=partition, headers=headers)
    assert producer.flush(300) == 0


def killed(project: Project, point: str) -> None:
    log = (
        project.folder
        / f"{point.replace(':', '.')}.{len(list(project.folder.glob('*.died')))}.died"
    )
    died = project.run_warm(EOS_CRASH_AT=f"{point}:both", EOS_CRASH_LOG=str(log))
    assert died.returncode == KILLED, died.stderr
    assert log.exists(), died.stderr


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # five runs die for each
@pytest.mark.parametrize(("scope", "kafka"), [("partition", TOPIC), ("producer", "")])
def test_each_number_is_in_the_table_once_whatever_dies_when(
    made: Project, scope: str, kafka: str
) -> None:
    numbers = range(40)  # with the repetitions: 146 records, eight micro-batches
    declare(made, scope, kafka)
    feed(made, numbers)
    for point in DIES_AT:
        killed(made, point)
    done = made.run_warm()
    assert done.returncode == 0, done.stderr
    once = Counter(dict.fromkeys(numbers, lake.PARTITIONS))
    assert Counter(row["n"] for row in lake.rows(lake.table(made, "all"))) == once
    last = {row["partition"]: row["n"] for row in lake.rows(lake.table(made, "last"))}
    assert last == dict.fromkeys(range(lake.PARTITIONS), numbers[-1])
    if kafka:
        topic = kafka_io.read(made.broker.bootstrap, made.target)
        assert Counter(int(row.value or b"-1") for row in topic) == once
    bodies = [
        json.loads(row.value or b"") for row in kafka_io.read(made.broker.bootstrap, made.ledger)
    ]
    dropped = sum(
        each["attempt"]["dedup"]["verdicts"].get("duplicate", 0)
        for each in bodies
        if each["kind"] == "attempt"
    )
    assert dropped == lake.PARTITIONS * (len(numbers) - RESENT)


@pytest.mark.nightly  # several runs of Spark
def test_a_table_is_not_caught_up_without_the_dedup_of_its_attempt(made: Project) -> None:
    numbers = range(15)
    declare(made, "partition", "")
    feed(made, numbers)
    killed(made, "tables:before")
    declare(made, "partition", "", dedup="")
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "[table_gap]" in stopped.stderr
    assert "the pipeline file has no `dedup` any more" in stopped.stderr
    assert lake.rows(lake.table(made, "all")) == []
    declare(made, "partition", "")
    assert made.run_warm().returncode == 0
    verify = [sys.executable, "-m", "eos", "verify", *made.words(), "--json"]
    env = made.environment()
    done = subprocess.run(verify, env=env, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["findings"] == [], done.stdout
    found = Counter(row["n"] for row in lake.rows(lake.table(made, "all")))
    assert found == Counter(dict.fromkeys(numbers, lake.PARTITIONS))
