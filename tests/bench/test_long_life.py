"""What many micro-batches of one pipeline cost, what its process holds, and what is in Kafka then.

The pipeline is the product's transaction code without Spark (`support.copies.pipeline_copy`), with
a record in each micro-batch. EOS_BENCH_MICRO_BATCHES=100000 takes an hour.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from bench.conftest import Figures
from history.checker import check
from history.events import Event
from support.copies.pipeline_copy import Copy, Job
from support.kafka import kafka_io
from support.kafka.kafka_io import create_topics, read, wait_closed
from support.spark.processes import cpu_seconds_of

from eos.local.embedded_kafka import EmbeddedKafka
from eos.observe.events import AttemptFailed, MicroBatchCommitted

MICRO_BATCHES = int(os.environ.get("EOS_BENCH_MICRO_BATCHES", "10000"))
TENTHS = 10
NAME = "long-life"
SOURCE, TARGET = f"{NAME}.in", f"{NAME}.out"


def held() -> tuple[int, int, int]:
    """Memory in MB, threads and open files of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    files = len(list(Path("/proc/self/fd").iterdir()))
    return int(status["VmRSS"].split()[0]) // 1024, int(status["Threads"]), files


def started(job: Job) -> float:
    """How long another process' start takes, in ms."""
    begun = time.perf_counter()
    with Copy(job) as copy:
        copy.start()
        took = time.perf_counter() - begun
        copy.stop()
    return took * 1000


def everything(bootstrap: str, ledger: str) -> list[Event]:
    """The history of all of it, as the checker reads it."""
    wait_closed(bootstrap, SOURCE, TARGET, ledger)
    rows = {topic: read(bootstrap, topic) for topic in (SOURCE, TARGET, ledger)}
    texts = {
        topic: [[row.offset, (row.value or b"").decode()] for row in each]
        for topic, each in rows.items()
    }
    places = {"source": SOURCE, "target": TARGET}
    return [
        {"op": "copy", **places},
        {
            "op": "write",
            "producer": "the test",
            "outcome": "info",
            "records": [[SOURCE, 0, value] for _, value in texts[SOURCE]],
        },
        *(
            {"op": "all", "topic": topic, "partition": 0, "records": texts[topic]}
            for topic in (SOURCE, TARGET)
        ),
        {"op": "ledger", "pipeline": NAME, **places, "records": texts[ledger]},
    ]


@pytest.mark.timeout(1200 + MICRO_BATCHES // 5)
def test_long_life(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    bootstrap = broker.bootstrap
    create_topics(bootstrap, 1, SOURCE, TARGET)
    # Few records in each record batch, since each micro-batch reads a whole one.
    writer = kafka_io.producer(bootstrap, {"batch.num.messages": 10})
    for number in range(MICRO_BATCHES):
        writer.produce(SOURCE, b"%d" % number)
        writer.poll(0)
    assert writer.flush(300) == 0
    job = Job(bootstrap, NAME, SOURCE, TARGET, tmp_path / "checkpoint", records=1)
    producers: set[int] = set()
    points: list[dict[str, float]] = []
    with Copy(job) as copy:
        copy.start()
        for tenth in range(TENTHS):
            begun, used = time.perf_counter(), cpu_seconds_of(os.getpid())
            for _ in range(MICRO_BATCHES // TENTHS):
                assert copy.step()
            count = MICRO_BATCHES // TENTHS
            memory, threads, files = held()
            points.append(
                {
                    "micro_batches": (tenth + 1) * count,
                    "ms": (time.perf_counter() - begun) * 1000 / count,
                    "cpu_ms": (cpu_seconds_of(os.getpid()) - used) * 1000 / count,
                    "memory_mb": memory,
                    "threads": threads,
                    "files": files,
                }
            )
            producers |= {event.producer_id for event in copy.told.of(MicroBatchCommitted)}
            assert not copy.told.of(AttemptFailed)
            copy.told.events.clear()
        copy.stop()
    assert not (found := check(everything(bootstrap, job.ledger))), found[0]
    assert len(kafka_io.read(bootstrap, TARGET)) == MICRO_BATCHES
    figures.keep("long_life", {"points": points, "producer_ids": len(producers)})
    for point in points:
        figures.add(
            f"after {point['micro_batches']:,} micro-batches",
            f"{point['ms']:.1f} ms each, {point['cpu_ms']:.1f} ms of CPU time; "
            f"{point['memory_mb']} MB, {point['threads']} threads, {point['files']} files",
        )
    figures.add("producer ids", str(len(producers)))
    figures.add("the next start", f"{started(job):.0f} ms")
