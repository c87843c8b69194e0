"""SIGKILL at each step of a micro-batch with dedup, under an upstream that resends all the time."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support import outside
from support.copy import Copy, Job
from support.forked import Forked
from support.scenes import PARTITIONS, Scenes

from eos.deadline import Deadline
from eos.faults import MOMENTS, POINTS

STEPS = [f"{point}:{moment}" for point in (*POINTS, "producers") for moment in MOMENTS]
RESENT, NEW = 5, 12


class Upstream:
    """A producer in each partition, which begins each time with its last records of before. Every
    third time it is another instance, and the one before wakes up once more."""

    def __init__(self, job: Job) -> None:
        self._producer = Producer(
            {**outside.IN_ORDER, "bootstrap.servers": job.bootstrap, "log_level": 2}
        )
        self._topic = job.source
        self.sent: list[str] = []  # of each partition, those that are to come out
        self._epoch = self._next = 0

    def send(self, turn: int) -> None:
        first = max(0, self._next - RESENT)
        if turn % 3 == 2:
            self._epoch, self._next, first = self._epoch + 1, 0, 0
        new = range(self._next, self._next + NEW)
        found = [(self._epoch, number) for number in range(first, new.stop)]
        if self._epoch:
            found += [(self._epoch - 1, 0), (self._epoch - 1, 999)]
        for epoch, number in found:
            for partition in range(PARTITIONS):
                value = f"app{partition}:{epoch}:{number}"
                self._producer.produce(self._topic, value=value, partition=partition)
        self._next = new.stop
        self.sent += [f"{self._epoch}:{number}" for number in new]
        assert self._producer.flush(60) == 0


@pytest.fixture
def deduped(scenes: Scenes, tmp_path: Path) -> Job:
    return replace(scenes.new(0).job, dedup=str(tmp_path / "states"))


def came_out(job: Job) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for row in outside.read(job.bootstrap, job.target):
        who, _, rest = (row.value or b"").decode().partition(":")
        assert who == f"app{row.partition}"
        found[row.partition].append(rest)
    return found


def drained(job: Job) -> Copy:
    with Copy(job) as copy:
        copy.start()
        copy.drain()
        copy.stop()
        return copy


def test_each_record_comes_out_once_whenever_it_dies(deduped: Job) -> None:
    upstream = Upstream(deduped)
    for turn, step in enumerate(STEPS):
        upstream.send(turn)
        if turn % 5 == 4:
            shutil.rmtree(deduped.folder)  # the checkpoint is lost, too
        with Forked(deduped, EOS_CRASH_AT=f"{step}:python") as process:
            assert process.wait() == -signal.SIGKILL, f"{step}: {process.said()}"
    drained(deduped)
    assert came_out(deduped) == [upstream.sent] * PARTITIONS


def test_behind_a_rewind_the_same_comes_out_again_and_nothing_else(deduped: Job) -> None:
    upstream = Upstream(deduped)
    counts = []
    for turn in range(4):
        upstream.send(turn)
        drained(deduped)
        counts.append(len(upstream.sent))
    with Copy(deduped) as copy:
        copy.start()
        ends = [
            record.position
            for record in reversed(copy.batches.ledger.history(100, Deadline.after_ms(60_000)))
            if record.kind == "stop"
        ]
        copy.batches.note("recovery", replace(ends[1], is_reset=True), {"why": "a test"})
    drained(deduped)
    expected = upstream.sent + upstream.sent[counts[1] :]
    assert came_out(deduped) == [expected] * PARTITIONS
