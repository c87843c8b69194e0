"""Upstreams that send twice: what comes out once, what is told, and what stops."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from confluent_kafka import Producer
from support import outside
from support.project import Project

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
dedup: {{producer: {{id: header(producer), epoch: header(epoch), sequence: header(sequence)}}}}
transform:
  - sql: SELECT * FROM input WHERE CAST(CAST(value AS STRING) AS INT) % 10 > 0
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
PARTITIONS = 2


class Upstream:
    """One producer a partition: `app-PARTITION`. Its value is its number."""

    def __init__(self, project: Project) -> None:
        self._topic = project.source
        self._producer = Producer({"bootstrap.servers": project.broker.bootstrap, "log_level": 3})

    def send(self, epoch: int, numbers: Iterable[int], first: int = 0, who: str = "app") -> None:
        """`first`: the number whose sequence is 0."""
        for number in numbers:
            for partition in range(PARTITIONS):
                stamp = {"producer": f"{who}-{partition}", "epoch": epoch}
                stamp |= {"sequence": number - first}
                self._producer.produce(
                    self._topic,
                    b"%d" % number,
                    partition=partition,
                    headers={name: str(value) for name, value in stamp.items()},
                )
        assert self._producer.flush(60) == 0


def made(project: Project, records: int = 1000) -> Upstream:
    project.declare(records, PARTITIONS, text=PIPELINE)
    outside.create_topics(project.broker.bootstrap, PARTITIONS, project.source)
    return Upstream(project)


def came_out(project: Project) -> Counter[int]:
    rows = outside.read(project.broker.bootstrap, project.target)
    return Counter(int(row.value or b"-1") for row in rows)


def once(numbers: Iterable[int]) -> Counter[int]:
    return Counter({n: PARTITIONS for n in numbers if n % 10})


def attempts(project: Project) -> list[dict]:
    rows = outside.read(project.broker.bootstrap, project.ledger)
    bodies = [json.loads(row.value or b"") for row in rows]
    return [body for body in bodies if body["kind"] == "attempt"]


def ran(project: Project) -> str:
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_an_upstream_that_resends_restarts_and_is_replaced(project: Project) -> None:
    upstream = made(project, records=60)  # several micro-batches
    upstream.send(0, range(100))
    upstream.send(0, range(75, 100))  # heard no answer
    told = ran(project)
    assert "dedup dropped" in told
    upstream.send(0, range(80, 110))  # crashed, and resends what it does not know of
    upstream.send(1, range(110, 130), first=110)  # another instance takes over
    upstream.send(0, range(110, 115))  # the first one wakes up
    ran(project)
    assert came_out(project) == once(range(130))
    sums: Counter[str] = Counter()
    for body in attempts(project):
        sums.update(body["attempt"]["dedup"]["verdicts"])
    assert sums == {"appended": 260, "duplicate": 90, "fenced": 10}
    # Nothing new: a run that finds nothing changes nothing.
    ran(project)
    assert came_out(project) == once(range(130))


def test_a_gap_stops_before_anything_is_written(project: Project) -> None:
    upstream = made(project)
    upstream.send(0, range(20))
    ran(project)
    upstream.send(0, range(25, 30))
    done = project.run_warm()
    assert done.returncode == 4
    assert "sequence 25, where 20 is next" in done.stderr
    assert came_out(project) == once(range(20))
