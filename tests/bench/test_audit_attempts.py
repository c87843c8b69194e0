"""What both audit tables cost over many committed attempts of 200 target partitions.

A real broker has the ledger, and the run's own code commits each attempt. Only its receipts are
made up, so that no target partition is written. The audit thread's own functions then update the
tables, once for EOS_BENCH_SHARED attempts: the thread pauses after each update, so with a
micro-batch each second it updates the tables once for about three.
"""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.conftest import Figures
from bench.test_audit_producers import TARGETS, receipts_of
from support.copies.pipeline_copy import Copy, Job
from support.kafka import kafka_io

from eos.audit.follower import Follower
from eos.audit.projection import Projection
from eos.audit.table import AuditTable, ProducersTable, TransactionsTable
from eos.deadline import Deadline
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends
from eos.local.embedded_kafka import EmbeddedKafka

ATTEMPTS = int(os.environ.get("EOS_BENCH_ATTEMPTS", "10000"))
SHARED = int(os.environ.get("EOS_BENCH_SHARED", "3"))
WARM_UP = 10
WINDOW = 128  # attempts of a figure; the table is maintained once in 64 commits
# CPU seconds of eos for a million records with 200 target partitions, without the broker's.
OF_A_MILLION_S = 1.64
# The benchmark ends before a run's times have passed, after which old files are deleted.
FASTER = {
    "delta.logRetentionDuration": "interval 60 seconds",
    "delta.deletedFileRetentionDuration": "interval 60 seconds",
}


class MadeUpCopy(Copy):
    """Commits attempts whose receipts are made up."""

    def _execute(self, _identity: Identity, step: PlannedBatch, _floors: Ends) -> Sequence[Receipt]:
        return receipts_of(step.batch_id, int(time.time() * 1000))


@dataclass
class Costs:
    """CPU and wall milliseconds for an attempt, one entry for each update of the tables."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def text(self, end: int) -> str:
        last = end // SHARED
        cpu, wall = (of[max(0, last - WINDOW) : last] for of in (self.cpu, self.wall))
        mean = statistics.mean(cpu)
        share = mean / 1000 / OF_A_MILLION_S
        return (
            f"CPU mean {mean:.1f} ms, median {statistics.median(cpu):.1f} ms; wall median "
            f"{statistics.median(wall):.1f} ms; {share:.1%} of a million records"
        )


@pytest.mark.timeout(4 * 3600)
def test_many_attempts(
    broker: EmbeddedKafka, figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ATTEMPTS >= 2 * WINDOW >= 2 * SHARED
    for kind in (TransactionsTable, ProducersTable):
        monkeypatch.setattr(kind, "settings", {**kind.settings, **FASTER})
    name = f"bench-{uuid.uuid4().hex[:8]}"
    kafka_io.create_topics(broker.bootstrap, 1, f"{name}.in", f"{name}.out")
    kafka_io.fill(broker.bootstrap, f"{name}.in", range(ATTEMPTS + WARM_UP))
    job = Job(broker.bootstrap, name, f"{name}.in", f"{name}.out", tmp_path, 1)
    costs = Costs()
    marks = {WINDOW, ATTEMPTS // 4, ATTEMPTS // 2, 3 * ATTEMPTS // 4, ATTEMPTS}
    with MadeUpCopy(job) as copy:
        copy.start()
        projection = Projection(
            TransactionsTable(tmp_path / "audit" / "transactions"), copy.client, name, job.ledger
        )
        follower = Follower(projection, copy.told, 1000)
        for _ in range(WARM_UP):
            commit(copy)
            update(follower)
        for number in range(1, ATTEMPTS + 1):
            commit(copy)
            if number % SHARED == 0:
                used, start = time.process_time(), time.perf_counter()
                update(follower)
                costs.cpu.append((time.process_time() - used) * 1000 / SHARED)
                costs.wall.append((time.perf_counter() - start) * 1000 / SHARED)
            if number in marks:
                figures.add(f"attempt {number:,}", costs.text(number), "3 % at most")
                for table in (projection.table, projection.producers.table):
                    figures.add(f"  {table.name}", size_of(table, name))
    figures.keep("audit_attempts_ms", {"cpu": costs.cpu, "wall": costs.wall})


def commit(copy: Copy) -> None:
    """Commit an attempt, and wait until readers get its ledger record."""
    assert copy.step()
    ledger, deadline = TopicPartition(copy.job.ledger, 0), Deadline.after_ms(60_000)
    ends = [-1, 0]
    while ends[0] != ends[1]:
        assert not deadline.has_passed
        ends = [
            copy.client.list_offsets([ledger], "latest", committed=committed, deadline=deadline)[
                ledger
            ]
            for committed in (True, False)
        ]


def update(follower: Follower) -> None:
    """Do what the audit thread does once it is woken."""
    result = follower._caught_up(Deadline.after_ms(60_000))
    follower._maintain()
    assert result.is_settled
    assert not result.findings
    assert result.rebuilt_from is None


def size_of(table: AuditTable, pipeline: str) -> str:
    """Return the size of a table: its rows and files now, and all files on disk."""
    (found,) = table.query(f"SELECT count(*) AS n FROM {table.name}")
    size = table.size(pipeline)
    assert size is not None
    log = list((table.location.local / "_delta_log").iterdir())
    data = list(table.location.local.rglob("*/*.parquet"))
    data = [each for each in data if each.parent.name != "_delta_log"]
    of_data, of_log = (sum(each.stat().st_size for each in kind) / 1e6 for kind in (data, log))
    checkpoints = sum(each.suffix == ".parquet" for each in log)
    commits = sum(each.suffix == ".json" for each in log)
    return (
        f"{found['n']:,} rows in {size.files} files; on disk {len(data):,} data files "
        f"({of_data:.1f} MB), {commits:,} log entries and {checkpoints} checkpoints "
        f"({of_log:.1f} MB); {TARGETS} target partitions"
    )
