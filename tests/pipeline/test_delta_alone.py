"""A Delta table without a target topic: exactly once, by a transaction of the ledger's record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from support.delta import lake
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import KILLED, Project, WarmDriver

RECORDS = 20  # a micro-batch
DIES_AT = (
    "all_acked:after",  # nothing is in the transaction yet
    "ledger_record:after",
    "end_txn_sent:after",
    "tables:before",
    "tables:after",
)
# The last step returns no column of Kafka's.
PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{json: "k INT, n BIGINT"}}
  on_error: ANSWER
transform:
  - sql: SELECT k, n, k * n AS product FROM input
sink:
  DEAD
  delta: {{path: FOLDER/lake/all}}
trigger: {{available_now: true}}
"""


@pytest.fixture
def made(tmp_path: Path, broker: Kafka, with_delta: WarmDriver) -> Project:
    project = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, lake.PARTITIONS, project.source)
    return project


def attempts(project: Project) -> list[dict[str, Any]]:
    rows = kafka_io.read(project.broker.bootstrap, project.ledger)
    found = [json.loads(row.value or b"") for row in rows]
    return [each for each in found if each["kind"] == "attempt"]


def require_rows(project: Project, numbers: Iterable[int]) -> None:
    found = lake.rows(lake.table(project, "all"))
    assert sorted(row["n"] for row in found) == sorted(numbers)
    assert all(row["product"] == row["k"] * row["n"] for row in found)


def said(project: Project, *words: str) -> str:
    command = [sys.executable, "-m", "eos", words[0], *project.words(), *words[1:]]
    env = project.environment()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
def test_rejected_records_are_found_before_the_commit(made: Project) -> None:
    lake.declare(made, RECORDS, PIPELINE, ANSWER="fail", DEAD="")
    lake.feed(made, range(10))
    assert made.run_warm().returncode == 0
    producer = kafka_io.producer(made.broker.bootstrap)
    producer.produce(made.source, b"no object", partition=0)
    assert producer.flush(300) == 0
    lake.feed(made, range(10, 20))
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "[record_malformed]" in stopped.stderr
    assert len(attempts(made)) == 1
    require_rows(made, range(10))

    dead = f"dead_letter: {{{{topic: {made.target}, create: {{{{partitions: 1}}}}}}}}"
    lake.declare(made, RECORDS, PIPELINE, ANSWER="dead_letter", DEAD=dead)
    assert made.run_warm().returncode == 0
    require_rows(made, range(20))
    letters = kafka_io.read(made.broker.bootstrap, made.target)
    assert [row.value for row in letters] == [b"no object"]
    first, second = attempts(made)
    assert first["attempt"]["receipts"] == []
    assert [each["records"] for each in second["attempt"]["receipts"]] == [1]
    lake.require_proven(made, "all", micro_batches=2, commits=2, inserted=20)
    assert "delta: all" in said(made, "plan")
    assert made.name in said(made, "status")
    for file in (lake.table(made, "all") / "_delta_log").glob(f"*{2:020d}.*"):
        file.unlink()  # as a copy of the table from before its newest commit lacks it
    told = lake.verified(made, "--from-start", code=1)
    assert [each["case"] for each in told["findings"]] == ["delta_lost", "delta_version"]
    assert told["smallest"]["attempt"]["batch_id"] == second["batch_id"]


@pytest.mark.nightly  # five runs die
@pytest.mark.timeout(1800)
def test_every_row_once_whatever_dies_when(made: Project) -> None:
    lake.declare(made, RECORDS, PIPELINE, ANSWER="fail", DEAD="")
    numbers = range((len(DIES_AT) + 1) * RECORDS)
    lake.feed(made, numbers)
    for point in DIES_AT:
        log = made.folder / point.replace(":", ".")
        died = made.run_warm(EOS_CRASH_AT=f"{point}:both", EOS_CRASH_LOG=str(log))
        assert died.returncode == KILLED, died.stderr
        assert log.exists(), died.stderr
    done = made.run_warm()
    assert done.returncode == 0, done.stderr
    require_rows(made, numbers)
    assert all(each["attempt"]["receipts"] == [] for each in attempts(made))
    count = len(attempts(made))  # of the ledger: a crash may divide a micro-batch
    lake.require_proven(made, "all", micro_batches=count, commits=count, inserted=len(numbers))
