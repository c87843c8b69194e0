"""A pipeline file that changes between two runs: `eos plan --against-running` predicts what the
next run does, and accepted changes lose and repeat no record."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.copies.recovery import run_verb
from support.kafka import kafka_io
from support.kafka.brokers import Kafka
from support.spark.project import Project, WarmDriver
from support.verbs import plan, recover
from support.waiting import wait_until

BEFORE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, start: earliest, max_records: {records}}}
  value: {{json: "n BIGINT"}}
transform:
  - {{sql: "SELECT *, 'before' AS release FROM input"}}
sink: {{kafka: {{topic: {target}, value: json, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
AFTER = """
version: 1
name: {name}
source:
  kafka: {{topics: [{source}, {source}.more], start: latest, max_records: 1000}}
  value: {{json: "n INT, extra STRING"}}
  reader: spark
  on_error: drop
expect:
  - {{name: small, rule: "n < 1000", on_error: dead_letter}}
transform:
  - {{sql: "SELECT n, topic FROM input"}}
  - {{sql: "SELECT *, 'after' AS release FROM input"}}
sink:
  kafka:
    - {{topic: {target}, value: {{json: [n, release]}}, compression: zstd}}
    - {{topic: {target}.odd, where: "n % 2 = 1", value: json, create: {{partitions: 1}}}}
  dead_letter: {{topic: {target}.dlq, create: {{partitions: 1}}}}
trigger: {{every: 1 second}}
transaction: {{timeout: 2 minutes}}
"""


def compared(project: Project, code: int = 0) -> dict[str, Any]:
    found = run_verb(plan, *project.words(), "--against-running", "--json")
    assert found.code == code, found
    return found.json


def feed(project: Project, numbers: range, topic: str = "") -> None:
    producer = kafka_io.producer(project.broker.bootstrap)
    for n in numbers:
        producer.produce(topic or project.source, json.dumps({"n": n}).encode(), partition=n % 2)
    assert producer.flush(600) == 0


def ran(project: Project) -> str:
    done = project.run_warm("--available-now")
    assert done.returncode == 0, done.stderr
    return done.stderr


def stopped(project: Project, code: str, exit_code: int = 4) -> None:
    """The next run stops, and the comparison has predicted that."""
    predicted = compared(project, exit_code)["stops"]
    assert [each["code"] for each in predicted] == [code]
    done = project.run_warm("--available-now")
    assert done.returncode == exit_code, done.stderr
    assert f"[{code}]" in done.stderr


def written(project: Project, topic: str) -> Counter[tuple[int, str]]:
    rows = kafka_io.read(project.broker.bootstrap, topic)
    bodies = [json.loads(row.value or b"") for row in rows]
    return Counter((each["n"], each["release"]) for each in bodies)


@pytest.mark.long
def test_nearly_everything_may_change_but_no_topic_may_be_left_out(project: Project) -> None:
    more, target = f"{project.source}.more", project.target
    kafka_io.create_topics(project.broker.bootstrap, 2, project.source, more)
    project.declare(8, 2, BEFORE.replace("available_now: true", "every: 100 ms"))
    feed(project, range(10))
    run = project.start_warm()
    wait_until(lambda: written(project, target).total() == 10, run.said, run)
    project.declare(8, 2, AFTER)  # a run reads its file once
    feed(project, range(10, 20))
    wait_until(lambda: written(project, target).total() == 20, run.said, run)
    run.send_signal(signal.SIGTERM)
    assert run.wait() == 0, run.said()
    feed(project, range(20, 40))
    feed(project, range(100, 110), more)
    feed(project, range(1000, 1001))
    found = compared(project)
    assert {each["verdict"] for each in found["changes"]} == {"may change"}
    paths = {each["path"].split("[")[0] for each in found["changes"]}
    assert {"source.kafka.start", "source.reader", "expect", "transform", "sink.kafka"} <= paths
    ran(project)
    before = {(n, "before"): 1 for n in range(20)}
    after = {(n, "after"): 1 for n in (*range(20, 40), *range(100, 110))}
    assert written(project, target) == Counter(before | after)
    odd = {key: 1 for key in after if key[0] % 2}
    assert written(project, f"{target}.odd") == Counter(odd)
    assert len(kafka_io.read(project.broker.bootstrap, f"{target}.dlq")) == 1
    assert compared(project)["changes"] == []

    project.declare(8, 2, BEFORE)
    stopped(project, "left_out")
    assert run_verb(recover, *project.words(), "--forget-topic", more, "--yes").code == 0
    feed(project, range(40, 45))
    assert compared(project)["exit_code"] == 0
    ran(project)
    last = {(n, "before"): 1 for n in range(40, 45)}
    assert written(project, target) == Counter(before | after | last)


LAKE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{json: "n BIGINT"}}
sink:
  kafka: {{topic: {target}, value: json, create: {{partitions: {partitions}}}}}
  DELTA
trigger: {{available_now: true}}
"""


@pytest.fixture
def lake(tmp_path: Path, broker: Kafka, with_delta: WarmDriver) -> Project:
    made = Project.made(tmp_path, broker, with_delta)
    kafka_io.create_topics(broker.bootstrap, 2, made.source)
    return made


def declare(project: Project, *tables: str) -> None:
    """`tables`: NAME=FOLDER."""
    pairs = [each.split("=") for each in tables]
    folder = project.folder / "lake"
    listed = [f"{{{{name: {name}, path: {folder}/{place}}}}}" for name, place in pairs]
    project.declare(100, 2, LAKE.replace("DELTA", f"delta: [{', '.join(listed)}]"))


def rows(project: Project, place: str) -> list[int]:
    table = DeltaTable(str(project.folder / "lake" / place)).to_pyarrow_table()
    return sorted(table["n"].to_pylist())


@pytest.mark.nightly
def test_tables_may_be_added_removed_and_moved_but_not_replaced(lake: Project) -> None:
    declare(lake, "one=one")
    feed(lake, range(4))
    ran(lake)
    declare(lake, "one=one", "two=two")
    compared(lake)
    feed(lake, range(4, 8))
    ran(lake)
    assert (rows(lake, "one"), rows(lake, "two")) == ([*range(8)], [*range(4, 8)])

    declare(lake, "one=one")
    compared(lake)
    feed(lake, range(8, 10))
    assert "the table two was removed from the sink" in ran(lake)
    assert rows(lake, "two") == [*range(4, 8)]
    declare(lake, "one=one", "two=two")
    compared(lake)
    feed(lake, range(10, 12))
    ran(lake)
    assert rows(lake, "two") == [4, 5, 6, 7, 10, 11]

    declare(lake, "one=moved", "two=two")
    stopped(lake, "table_replaced")
    shutil.move(lake.folder / "lake" / "one", lake.folder / "lake" / "moved")
    compared(lake)
    feed(lake, range(12, 14))
    ran(lake)
    assert rows(lake, "moved") == [*range(14)]

    declare(lake, "renamed=moved", "two=two")
    compared(lake)
    feed(lake, range(14, 16))
    ran(lake)
    assert rows(lake, "moved") == [*range(16)]
