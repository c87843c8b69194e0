"""Two topics of one source, joined with each other: each pair once, and what has no partner once,
against pairs that are made without Spark."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable

import pytest
from support.kafka import kafka_io
from support.spark.project import KILLED, Project

from eos.faults import POINTS

pytestmark = pytest.mark.long

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topics: [{source}, {source}.paid], max_records: {records}}}}}
transform:
  - python: "pipelines.{module}.transform:joined"
    with: {{paid: {source}.paid}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
TRANSFORM = """
from pyspark.sql import functions as f


def joined(frame, paid):
    rows = frame.selectExpr("topic", "CAST(CAST(value AS STRING) AS INT) AS id", "timestamp AS at")
    rows = rows.withWatermark("at", "2 hours")
    orders = rows.where(f.col("topic") != paid).alias("o")
    payments = rows.where(f.col("topic") == paid).alias("p")
    within = "o.id = p.id AND p.at >= o.at AND p.at <= o.at + INTERVAL 30 MINUTES"
    pairs = orders.join(payments, f.expr(within), "left_outer")
    return pairs.selectExpr("CAST(o.id AS STRING) AS key", "CAST(p.at IS NULL AS STRING) AS value")

"""
PARTITIONS = 2
_MINUTE_MS = 60_000
_MIDNIGHT_MS = (int(time.time()) // 86_400 - 3) * 86_400_000
END = 2000  # an order that is late enough to end all others


@pytest.fixture
def made(project: Project) -> Project:
    project.declare(60, PARTITIONS, text=PIPELINE)
    place = project.folder / "pipelines" / project.name
    (place / "transform.py").write_text(TRANSFORM)
    paid = f"{project.source}.paid"
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source, paid)
    return project


def send(project: Project, orders: Iterable[int]) -> None:
    """One each minute; two of three are paid, some minutes later."""
    producer = kafka_io.producer(project.broker.bootstrap)
    for n in orders:
        at = _MIDNIGHT_MS + n * _MINUTE_MS
        where = {"value": b"%d" % n, "partition": n % PARTITIONS}
        producer.produce(project.source, timestamp=at, **where)
        if n % 3:
            later = at + n % 20 * _MINUTE_MS
            producer.produce(f"{project.source}.paid", timestamp=later, **where)
    assert producer.flush(300) == 0


def came_out(project: Project) -> Counter[tuple[int, str]]:
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    return Counter((int(row.key or b"-1"), (row.value or b"").decode()) for row in rows)


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # three starts of Spark, or ten
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(["end_txn_answered:after"], id="before Spark noted a commit"),
        pytest.param([f"{p}:before" for p in POINTS], id="at each step", marks=pytest.mark.nightly),
    ],
)
def test_each_pair_once_whatever_died_when(made: Project, points: list[str]) -> None:
    send(made, range(300))
    for point in points:
        died = made.run_warm(EOS_CRASH_AT=f"{point}:both")
        assert died.returncode == KILLED, died.stderr
    for orders in ((), [END]):  # by itself, or it would make late what lies behind it elsewhere
        send(made, orders)
        done = made.run_warm()
        assert done.returncode == 0, done.stderr
    paid = Counter((n, "false") for n in (*range(300), END) if n % 3)
    assert came_out(made) == paid + Counter((n, "true") for n in range(0, 300, 3))
    rows = kafka_io.read(made.broker.bootstrap, made.ledger)
    attempts = [body for body in map(json.loads, (row.value for row in rows)) if "attempt" in body]
    assert len(attempts) > 3
    for topic in (made.source, f"{made.source}.paid"):
        ends = kafka_io.ends(made.broker.bootstrap, topic)
        assert kafka_io.group_offsets(made.broker.bootstrap, made.group, topic) == ends
