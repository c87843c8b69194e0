"""Dedup by columns: each key once for as long as it is known, across restarts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone

import pytest
from support.kafka import kafka_io
from support.spark.project import KILLED, Project

from eos.faults import POINTS

PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
  value: {{json: "id BIGINT, part STRING, made TIMESTAMP"}}
dedup: {{by: [id, part], within: 1 day, watermark: made}}
transform:
  - sql: SELECT key, CAST(id AS STRING) || part AS value FROM input WHERE id % 10 > 0
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
PARTITIONS = 2
DAY = 86_400
_MIDNIGHT = (int(time.time()) // DAY - 2) * DAY


@pytest.fixture
def made(project: Project) -> Project:
    project.declare(40, PARTITIONS, text=PIPELINE)
    kafka_io.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    return project


def send(project: Project, ids: Iterable[int], after_s: int = 0, **more: object) -> None:
    """Each in a partition of its own choice: a key that comes again may lie in another one."""
    producer = kafka_io.producer(project.broker.bootstrap)
    for at, number in enumerate(ids):
        for part in "xy":
            moment = datetime.fromtimestamp(_MIDNIGHT + after_s + number, timezone.utc)
            value = {"id": number, "part": part, "made": moment.isoformat(), **more}
            producer.produce(project.source, json.dumps(value), "k", partition=at % PARTITIONS)
    assert producer.flush(300) == 0


def ran(project: Project) -> str:
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    return done.stderr


def came_out(project: Project) -> Counter[str]:
    rows = kafka_io.read(project.broker.bootstrap, project.target)
    return Counter((row.value or b"").decode() for row in rows)


def expected(*ranges: Iterable[int]) -> Counter[str]:
    return Counter(f"{n}{part}" for each in ranges for n in each if n % 10 for part in "xy")


@pytest.mark.nightly
@pytest.mark.timeout(1800)  # nine starts of Spark
def test_each_key_once_whatever_died_when(made: Project) -> None:
    """Each key is sent again in the next micro-batch, which another process may read."""
    for first in range(0, 160, 20):
        send(made, [*range(first, first + 20), *range(max(0, first - 20), first)])
    for point in POINTS:
        died = made.run_warm(EOS_CRASH_AT=f"{point}:after:both")
        assert died.returncode == KILLED, died.stderr
    ran(made)
    assert came_out(made) == expected(range(160))


@pytest.mark.long
def test_each_key_once_as_long_as_it_is_known(made: Project) -> None:
    made.declare(80, PARTITIONS, text=PIPELINE)
    send(made, [*range(50), *range(25, 50)])
    ran(made)
    assert came_out(made) == expected(range(50))
    # A start of its own, which has them from the checkpoint; and each at another time.
    send(made, [*range(5, 70), *range(5)], after_s=DAY // 2)
    ran(made)
    assert came_out(made) == expected(range(70))
    # Two days on nobody knows them any more; and a new one that is later than that is left out.
    send(made, [999], after_s=2 * DAY)
    ran(made)
    send(made, range(20), after_s=2 * DAY)
    send(made, range(100, 110))
    ran(made)
    assert came_out(made) == expected(range(70), [999], range(20))
    # Two records without a key can't be compared.
    send(made, [200], after_s=2 * DAY, id=None)
    stopped = made.run_warm()
    assert stopped.returncode == 4, stopped.stderr
    assert "[dedup_column_null]" in stopped.stderr
