"""SIGKILL at each step of a micro-batch with dedup, under an upstream that resends all the time."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.copies.owners import Forked
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import PARTITIONS, Scenes
from support.kafka import kafka_io
from support.machines.stores import versity

from eos.deadline import Deadline
from eos.faults import MOMENTS, POINTS

STEPS = [f"{point}:{moment}" for point in (*POINTS, "producers") for moment in MOMENTS]
RESENT, NEW = 5, 12
WINDOW = 60


class Upstream:
    """A producer in each partition, or one that writes to all of them, each time to others: it
    begins with its last records of before. Every third time it is another instance, and the one
    before wakes up once more."""

    def __init__(self, job: Job) -> None:
        self._is_spread = job.dedup_window > 0
        self._producer = kafka_io.producer(job.bootstrap)
        self._topic = job.source
        self.sent: list[str] = []  # of each producer, those that are to come out
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
            for who, partition in self._places(turn, number):
                value = f"{who}:{epoch}:{number}"
                self._producer.produce(self._topic, value=value, partition=partition)
        self._next = new.stop
        self.sent += [f"{self._epoch}:{number}" for number in new]
        assert self._producer.flush(300) == 0

    def _places(self, turn: int, number: int) -> list[tuple[str, int]]:
        if self._is_spread:
            return [("app", (turn + number) % PARTITIONS)]
        return [(f"app{partition}", partition) for partition in range(PARTITIONS)]

    def should_come_out(self, numbers: list[str]) -> dict[str, list[str]]:
        if self._is_spread:
            return {"app": sorted(numbers)}
        return {f"app{partition}": numbers for partition in range(PARTITIONS)}


@pytest.fixture(
    params=[
        pytest.param(0, id="partition"),
        pytest.param(WINDOW, id="producer", marks=pytest.mark.nightly),
        pytest.param(-1, id="partition-in-a-bucket", marks=pytest.mark.nightly),
        pytest.param(-WINDOW, id="producer-in-a-bucket", marks=pytest.mark.nightly),
    ]
)
def deduped(scenes: Scenes, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    """Of each scope; below 0, with the states in a bucket of VersityGW."""
    job = scenes.new(0).job
    if request.param >= 0:
        yield replace(job, dedup=str(tmp_path / "states"), dedup_window=request.param)
        return
    with versity(tmp_path / "versity") as store:
        states, conf = f"{store.root}/{job.name}", json.dumps(store.settings())
        window = WINDOW if request.param == -WINDOW else 0
        yield replace(job, dedup=states, store=conf, dedup_window=window)


def came_out(job: Job) -> dict[str, list[str]]:
    """Of each producer: in its order, where it writes to one partition."""
    found: dict[str, list[str]] = {}
    for row in kafka_io.read(job.bootstrap, job.target):
        who, _, rest = (row.value or b"").decode().partition(":")
        assert who in {"app", f"app{row.partition}"}
        found.setdefault(who, []).append(rest)
    return {who: sorted(each) if job.dedup_window else each for who, each in found.items()}


def drained(job: Job) -> Copy:
    with Copy(job) as copy:
        copy.start()
        copy.drain()
        copy.stop()
        return copy


@pytest.mark.long
def test_each_record_comes_out_once_whenever_it_dies(deduped: Job) -> None:
    upstream = Upstream(deduped)
    for turn, step in enumerate(STEPS):
        upstream.send(turn)
        if turn % 5 == 4:
            shutil.rmtree(deduped.folder)  # the checkpoint is lost, too
        with Forked(deduped, EOS_CRASH_AT=f"{step}:python") as process:
            assert process.wait() == -signal.SIGKILL, f"{step}: {process.said()}"
    drained(deduped)
    assert came_out(deduped) == upstream.should_come_out(upstream.sent)


def test_after_a_rewind_the_same_records_are_written_again(deduped: Job) -> None:
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
            for record in reversed(copy.batches.ledger.history(100, Deadline.after_ms(300_000)))
            if record.kind == "stop"
        ]
        copy.batches.note("recovery", replace(ends[1], is_reset=True), {"why": "a test"})
    drained(deduped)
    expected = upstream.sent + upstream.sent[counts[1] :]
    assert came_out(deduped) == upstream.should_come_out(expected)
