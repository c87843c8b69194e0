"""A Python worker's memory is bounded, whatever the size of a micro-batch and of its rows."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.kafka.kafka_io import fill_topic
from support.spark.processes import peak_mb, pipeline_processes, workers
from support.spark.project import Project

pytestmark = pytest.mark.long

WORKER_MB_MAX, DRIVER_MB_MAX = 250, 450
SMALL_RECORDS, SMALL_BYTES = 800_000, 180
LARGE_RECORDS, LARGE_BYTES = 10_000, 10_000
DRIVER_RECORDS = 40_000  # a small micro-batch
MARK = "EOS_TEST_MEMORY"

# Both topics in one micro-batch, through the shuffle: the workers do every kind of task.
PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topics: [{source}, {source}.large], max_records: {records}}}}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""
# Rows wait until many are judged together: as many as there may be, of the large ones fewer.
DEDUP = """
dedup:
  producer: {{id: header(p), epoch: header(e), sequence: header(s)}}
  on_unstamped: accept
"""


def rows(count: int, size: int) -> tuple[list[bytes], list[bytes]]:
    """Values that compress two to one, as hex digits do."""
    chance = random.Random(size)
    values = [chance.randbytes(size // 2).hex().encode() for _ in range(count)]
    return [b"k%d" % number for number in range(count)], values


@contextmanager
def watched(
    variable: str, processes: Callable[[str], Iterator[Path]] = workers
) -> Iterator[dict[str, float]]:
    """Peak memory of each of these processes, by its id, as long as it is entered."""
    peaks: dict[str, float] = {}
    is_over = threading.Event()

    def watch() -> None:
        # A peak stays in /proc as long as its process: a look now and then is enough.
        while not is_over.wait(0.1):
            for process in processes(variable):
                peaks[process.name] = max(peaks.get(process.name, 0.0), peak_mb(process))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        is_over.set()
        thread.join()


@pytest.mark.nightly
@pytest.mark.parametrize("more", ["", pytest.param(DEDUP, marks=pytest.mark.nightly)])
def test_a_worker_stays_small_in_a_large_micro_batch(project: Project, more: str) -> None:
    bootstrap = project.broker.bootstrap
    fill_topic(bootstrap, project.source, rows(20_000, SMALL_BYTES), SMALL_RECORDS)
    fill_topic(bootstrap, f"{project.source}.large", rows(500, LARGE_BYTES), LARGE_RECORDS)
    records = SMALL_RECORDS + LARGE_RECORDS
    project.declare(records * 2, text=PIPELINE + more)  # the limit is shared out by rounded shares
    with watched(f"{MARK}={project.name}") as peaks:
        done = project.run(**{MARK: project.name})
    assert done.returncode == 0, done.stderr
    # All in one micro-batch, or its size would have proven nothing.
    assert f"micro-batch 0 committed: {records:,} records in, {records:,} out" in done.stderr
    assert max(peaks.values(), default=0) > 60, f"only the workers' parent was seen: {peaks}"
    assert max(peaks.values()) < WORKER_MB_MAX, peaks


def test_the_driver_stays_small_in_a_small_micro_batch_of_large_records(project: Project) -> None:
    """It reads, encodes and writes them itself: 400 MB."""
    fill_topic(project.broker.bootstrap, project.source, rows(500, LARGE_BYTES), DRIVER_RECORDS)
    text = PIPELINE.replace("topics: [{source}, {source}.large]", "topic: {source}")
    project.declare(DRIVER_RECORDS * 2, text=text)
    with watched(f"{MARK}={project.name}", pipeline_processes) as peaks:
        done = project.run(**{MARK: project.name})
    assert done.returncode == 0, done.stderr
    assert f"micro-batch 0 committed: {DRIVER_RECORDS:,} records in" in done.stderr
    assert 100 < max(peaks.values(), default=0) < DRIVER_MB_MAX, peaks
