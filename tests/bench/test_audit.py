"""What the audit table costs: a micro-batch beside it, a commit after many others, a verdict."""

from __future__ import annotations

import os
import statistics
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.conftest import Figures
from confluent_kafka import Producer
from support.copies.pipeline_copy import Copy, Job
from support.kafka import kafka_io

from eos.audit import rows as made
from eos.audit.follower import Follower
from eos.audit.projection import Projection
from eos.audit.reader import read_transactions, walk
from eos.audit.table import TransactionsTable
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.receipt import Receipt
from eos.ledger.record import LedgerRecord, Position, nested
from eos.local.embedded_kafka import EmbeddedKafka
from eos.producers.batch import decide_all
from eos.report.content import gather

STEPS, RECORDS, PARTITIONS = 400, 10, 4
# More with EOS_BENCH_ATTEMPTS=100000, and patience.
ATTEMPTS = int(os.environ.get("EOS_BENCH_ATTEMPTS", "3200"))
MARKS = {mark for mark in (1_000, 3_000, 10_000, 30_000, 100_000) if mark < ATTEMPTS} | {ATTEMPTS}
EVERY = 64


@pytest.mark.timeout(600)
def test_a_micro_batch(broker: EmbeddedKafka, figures: Figures, tmp_path: Path) -> None:
    """The same pipeline, in turns with its table and without."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    kafka_io.create_topics(broker.bootstrap, PARTITIONS, f"{name}.in", f"{name}.out")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(STEPS * RECORDS * PARTITIONS):
        producer.produce(f"{name}.in", b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(60)
    job = Job(broker.bootstrap, name, f"{name}.in", f"{name}.out", tmp_path, RECORDS)
    took: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, float] = {True: 0.0, False: 0.0}
    with Copy(job) as copy:
        copy.start()
        for turn in range(8):
            is_beside = turn % 2 == 1
            projection = Projection(
                TransactionsTable(tmp_path / "t"), copy.client, name, job.ledger
            )
            follower = Follower(projection, copy.told, 1000)
            if is_beside:
                follower.start()
            used = time.process_time()
            for _ in range(STEPS // 8):
                start = time.perf_counter()
                if is_beside:
                    follower.require()
                assert copy.step()
                if is_beside:
                    follower.committed()
                took[is_beside].append((time.perf_counter() - start) * 1000)
            cpu[is_beside] += time.process_time() - used
            if is_beside:
                follower.close()
    figures.keep("audit_micro_batch_ms", {str(key): value for key, value in took.items()})
    without, beside = (statistics.median(took[key]) for key in (False, True))
    figures.add("micro-batch without the audit table", f"{without:.1f} ms")
    figures.add("micro-batch beside it", f"{beside:.1f} ms", "a few ms more at most")
    more = (cpu[True] - cpu[False]) * 1000 / (STEPS / 2)
    figures.add("CPU time more for each", f"{more:.1f} ms")


def record(number: int) -> LedgerRecord:
    tps = [TopicPartition("in", partition) for partition in range(PARTITIONS)]
    receipts = [
        Receipt("out", p, 9, number * 10, number * 10 + 8, 100, 1) for p in range(PARTITIONS)
    ]
    attempt = {
        "number": 1,
        "begun_ms": 1000 * number,
        "starts": nested(dict.fromkeys(tps, number * 10)),
        "receipts": [receipt.as_json() for receipt in receipts],
    }
    position = Position(dict.fromkeys(tps, number * 10 + 10), {}, "q", number)
    owner = {"deployment": "d", "host": "h", "process": 1}
    identity = Identity(5 + number // 30_000, number % 30_000)
    return LedgerRecord("attempt", position, owner, 1000 * number, 2 * number, identity, attempt)


@pytest.mark.timeout(3600)
def test_after_many_commits(
    figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As fast as they can be, so the times after which something goes are made as much shorter."""
    faster = {
        "delta.logRetentionDuration": "interval 10 seconds",
        "delta.deletedFileRetentionDuration": "interval 30 seconds",
    }
    monkeypatch.setattr(TransactionsTable, "settings", {**TransactionsTable.settings, **faster})
    table = TransactionsTable(tmp_path / "t")
    commits: list[float] = []
    cleans: list[float] = []
    for number in range(ATTEMPTS):
        start = time.perf_counter()
        table.known("app")
        table.append(made.table(made.rows("p", "l", "lid", [record(number)])), "app", 2 * number)
        commits.append((time.perf_counter() - start) * 1000)
        if number % EVERY == EVERY - 1:
            start = time.perf_counter()
            Projection(table, None, "p", "l").maintain(EVERY)
            cleans.append((time.perf_counter() - start) * 1000)
        if number + 1 in MARKS:
            newest = commits[-1000:]
            start = time.perf_counter()
            assert read_transactions(table, "p", "l")
            looked = (time.perf_counter() - start) * 1000
            figures.add(
                f"after {number + 1:,} commits",
                f"commit {statistics.median(newest):.1f} ms, "
                f"99% {np.quantile(newest, 0.99):.0f} ms, look {looked:.0f} ms, "
                f"maintenance {statistics.median(cleans[-1000 // EVERY :]):.0f} ms, "
                f"at most {max(cleans):.0f} ms",
            )
    figures.keep("audit_commits_ms", commits)
    start = time.perf_counter()
    found = gather(walk(table, "p", "l"))
    took = time.perf_counter() - start
    figures.add(f"a report gathers {found.transactions:,} transactions", f"{took:.1f} s")


def test_verdicts(figures: Figures) -> None:
    count, producers = 2_000_000, 1_000
    producer = np.arange(count) % producers
    events = pa.table(
        {
            "producer": pa.array(producer, pa.int32()),
            "epoch": np.zeros(count, np.int64),
            "first": np.arange(count) // producers,
            "last": np.arange(count) // producers,
            "at_ms": np.arange(count),
        }
    )
    for name, found in (("in sequence", events), ("each twice", pa.concat_tables([events] * 2))):
        start = time.perf_counter()
        decide_all(found)
        took = time.perf_counter() - start
        figures.add(f"verdicts, {name}", f"{found.num_rows / took / 1e6:.1f} million/s")
