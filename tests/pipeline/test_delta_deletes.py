"""Deletes of a merged Delta table: by tombstones and a condition, each once, whatever dies when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.delta import lake
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import KILLED, Project, WarmDriver

RECORDS = 20  # a micro-batch
PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  key: {{json: "k INT"}}
  value: {{json: "n BIGINT, op STRING"}}
sink:
  kafka: {{topic: {target}, value: json, create: {{partitions: {partitions}}}}}
  delta:
    path: FOLDER/lake/live
    mode: merge
    keys: [k]
    columns: [k, n]
    where: WHERE
    delete_when: value IS NULL OR op = 'd'
    evolve: true
trigger: {{available_now: true}}
"""
WHERE = "n <> 13"


@pytest.fixture
def made(tmp_path: Path, broker: Kafka, with_delta: WarmDriver) -> Project:
    project = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, lake.PARTITIONS, project.source)
    lake.declare(project, RECORDS, PIPELINE, WHERE=WHERE)
    return project


def operation(number: int) -> str:
    if number % 5 == 0:
        return "tombstone"
    return "d" if number % 3 == 0 else "u"


def feed(project: Project, operations: Mapping[int, str]) -> None:
    """Write a record for each number. Its key keeps its partition."""
    producer = kafka_io.producer(project.broker.bootstrap)
    for number, op in operations.items():
        key = number % lake.KEYS
        value = None if op == "tombstone" else json.dumps({"n": number, "op": op})
        producer.produce(
            project.source, value, json.dumps({"k": key}), partition=key % lake.PARTITIONS
        )
    assert producer.flush(300) == 0


def feed_range(project: Project, numbers: Iterable[int]) -> None:
    feed(project, {number: operation(number) for number in numbers})


def expected(numbers: Iterable[int]) -> dict[int, int]:
    """Return what the table has after these records, applied one after another."""
    found: dict[int, int] = {}
    for number in numbers:
        if operation(number) == "u" and number != 13:
            found[number % lake.KEYS] = number
        elif operation(number) != "u":
            found.pop(number % lake.KEYS, None)
    return found


def table(project: Project) -> dict[int, int]:
    found = lake.rows(lake.table(project, "live"))
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: row["n"] for row in found}


def last_attempt(project: Project) -> int:
    rows = kafka_io.read(project.broker.bootstrap, project.ledger)
    return [row.offset for row in rows if json.loads(row.value or b"")["kind"] == "attempt"][-1]


def written(project: Project) -> int:
    return lake.version(lake.table(project, "live"), "live")


@pytest.mark.nightly
def test_the_last_record_of_a_key_writes_or_deletes(made: Project) -> None:
    feed_range(made, range(2 * RECORDS))
    assert made.run_warm().returncode == 0
    assert table(made) == expected(range(2 * RECORDS))
    assert 0 < len(table(made)) < lake.KEYS  # some rows are deleted, and some are not
    fields = DeltaTable(str(lake.table(made, "live"))).schema().fields
    assert [field.name for field in fields] == ["k", "n"]

    # Deletes alone, of all rows, and then of rows that the table does not have.
    for _ in range(2):
        feed(made, dict.fromkeys(range(lake.KEYS), "tombstone"))
        assert made.run_warm().returncode == 0
        assert table(made) == {}
        assert written(made) == last_attempt(made)

    producer = kafka_io.producer(made.broker.bootstrap)
    producer.produce(made.source, None, None, partition=1)
    assert producer.flush(300) == 0
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "[table_refuses]" in stopped.stderr
    assert f"the record {made.source}-1 at offset" in stopped.stderr
    lake.declare(made, RECORDS, PIPELINE, WHERE=f"k IS NOT NULL AND {WHERE}")
    feed(made, {8: "u"})
    assert made.run_warm().returncode == 0
    assert table(made) == {1: 8}
    told = lake.verified(made)
    proven = told["tables"]["live"]
    assert told["findings"] == []
    assert proven["commits"] == proven["micro_batches"] >= 4
    assert proven["inserted"] - proven["deleted"] == len(table(made))
    assert proven["updated"] > proven["uncounted"] == 0


@pytest.mark.nightly  # three runs die
def test_a_delete_is_applied_once_whatever_dies_when(made: Project) -> None:
    numbers = range(4 * RECORDS)
    feed_range(made, numbers)
    behind = -1
    for _ in range(2):  # each time between the transaction and the merge of its rows
        died = made.run_warm(EOS_CRASH_AT="tables:before:both")
        assert died.returncode == KILLED, died.stderr
        assert behind <= written(made) < last_attempt(made)
        behind = written(made)
    died = made.run_warm(EOS_CRASH_AT="tables:after:both")
    assert died.returncode == KILLED, died.stderr
    third = written(made)
    assert third == last_attempt(made)
    done = made.run_warm()
    assert done.returncode == 0, done.stderr
    assert f"table live skipped: it already has ledger record {third}" in done.stderr
    assert written(made) == last_attempt(made)
    assert table(made) == expected(numbers)
