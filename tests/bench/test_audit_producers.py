"""What the table `producers` costs with 200 target partitions: a micro-batch, and its growth."""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.conftest import Figures
from support.copies.pipeline_copy import Copy, Job, checked_receipts, write_pairs
from support.kafka import kafka_io

from eos.audit import producer_rows
from eos.audit.follower import Follower
from eos.audit.producer_states import ProducerStates
from eos.audit.producers_projection import ProducersResult
from eos.audit.projection import Projection
from eos.audit.table import ProducersTable, TransactionsTable
from eos.deadline import Deadline
from eos.faults import CrashPlan
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.records.parser import Marker
from eos.kafka.target_partitions import Targets
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import AppendedBatch, Receipt
from eos.ledger.record import AttemptRecord, Ends, LedgerRecord, Position, encoded
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction.writer import Writer

TARGETS, RECORDS = 200, 25  # five record batches of each target partition
STEPS = int(os.environ.get("EOS_BENCH_STEPS", "90"))
ATTEMPTS = int(os.environ.get("EOS_BENCH_ATTEMPTS", "1000"))
EVERY = 64
ARMS = ("no table", "transactions", "both tables")


class WideCopy(Copy):
    """Writes to all target partitions, so that reading is no part of a micro-batch's time."""

    def _execute(self, identity: Identity, _step: PlannedBatch, _floors: Ends) -> Sequence[Receipt]:
        targets = Targets.of({self.job.target: (TARGETS, 1_000_000)})
        deadline = Deadline.after_ms(60_000)
        name = self.job.name
        writer = Writer(self.writers, name, identity, targets, deadline, CrashPlan())
        for target in range(TARGETS):
            write_pairs(writer, target, [(b"key", b"v" * 100)] * RECORDS)
        return checked_receipts(writer, dict.fromkeys(range(TARGETS), RECORDS), targets)


@pytest.mark.timeout(1800)
def test_a_wide_micro_batch(broker: EmbeddedKafka, figures: Figures, tmp_path: Path) -> None:
    """The same pipeline in turns: without a table, with `transactions`, and with both."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    kafka_io.create_topics(broker.bootstrap, 2, f"{name}.in")
    kafka_io.create_topics(broker.bootstrap, TARGETS, f"{name}.out")
    kafka_io.fill(broker.bootstrap, f"{name}.in", range(2 * STEPS + 50))
    job = Job(broker.bootstrap, name, f"{name}.in", f"{name}.out", tmp_path, 1)
    took: dict[str, list[float]] = {arm: [] for arm in ARMS}
    cpu = dict.fromkeys(ARMS, 0.0)
    with WideCopy(job) as copy:
        copy.start()
        copy.step()
        for turn in range(9):
            arm = ARMS[(turn + turn // 3) % 3]
            follower = follower_of(copy, tmp_path / arm, arm)
            used = time.process_time()
            for _ in range(STEPS // 9):
                start = time.perf_counter()
                assert copy.step()
                if follower is not None:
                    follower.committed()
                    follower.require()
                took[arm].append((time.perf_counter() - start) * 1000)
            cpu[arm] += time.process_time() - used
            if follower is not None:
                follower.close()
    figures.keep("audit_wide_ms", took)
    for arm, times in took.items():
        count = len(times)
        figures.add(
            f"200 partitions, {arm}",
            f"{statistics.median(times):.1f} ms, mean {statistics.mean(times):.1f} ms, "
            f"{cpu[arm] / count * 1000:.1f} ms CPU",
            "producers: 3% more at most" if arm == ARMS[-1] else "",
        )


def follower_of(copy: Copy, folder: Path, arm: str) -> Follower | None:
    if arm == ARMS[0]:
        return None
    projection = Projection(
        TransactionsTable(folder / "transactions"), copy.client, copy.job.name, copy.job.ledger
    )
    if arm == ARMS[1]:
        projection._producers_caught_up = (  # type: ignore[method-assign]
            lambda end, _deadline: ProducersResult(end)
        )
    # What was committed without it is no part of its turn.
    while not projection.catch_up(Deadline.after_ms(60_000)).is_settled:
        time.sleep(0.05)
    follower = Follower(projection, copy.told, 1000)
    follower.start()
    return follower


def receipts_of(number: int, at_ms: int) -> list[Receipt]:
    offset = number * 60
    batches = tuple(
        AppendedBatch(10 * n, 10 * n + 9, offset + 10 * n, offset + 10 * n + 9, at_ms)
        for n in range(5)
    )
    sums = 50, offset, offset + 49, 5_000, 2**31
    return [Receipt("orders.enriched", p, *sums, batches) for p in range(TARGETS)]


def record(number: int) -> tuple[LedgerRecord, Marker]:
    """An attempt as it is read from the ledger, and its marker."""
    position, at_ms = Position({}, {}, "q", number), 1_000 * number
    attempt = {"receipts": [each.as_json() for each in receipts_of(number, at_ms)]}
    made = LedgerRecord("attempt", position, {}, at_ms, 2 * number, Identity(5, number), attempt)
    return made, Marker(2 * number + 1, Identity(5, number + 1), True, 0, at_ms)


def record_size() -> int:
    number, identity = 1_000_000, Identity(5, 30_000)
    made = AttemptRecord(1, identity, {}, receipts_of(number, 1_000 * number), 2**40)
    owner = {"deployment": "d", "host": "h", "process": 1}
    return len(encoded("p", owner, "attempt", Position({}, {}), made, identity=identity))


@pytest.mark.timeout(3600)
def test_its_growth(figures: Figures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Delta commit for each attempt, as fast as they can be. A run makes one a second at most,
    so the times after which files are deleted are made as much shorter."""
    faster = {
        "delta.logRetentionDuration": "interval 30 seconds",
        "delta.deletedFileRetentionDuration": "interval 30 seconds",
    }
    monkeypatch.setattr(ProducersTable, "settings", {**ProducersTable.settings, **faster})
    table = ProducersTable(tmp_path / "producers")
    states = ProducerStates(TopicPartition("l", 0))
    commits: list[float] = []
    applies: list[float] = []
    cleans: list[float] = []
    cpu: list[float] = []
    marks = {mark for mark in (1_000, 3_000, 10_000) if mark < ATTEMPTS} | {ATTEMPTS}
    for number in range(ATTEMPTS):
        read, marker = record(number)
        used, start = time.process_time(), time.perf_counter()
        states = states.copy()
        assert not states.apply(read, marker)
        states.expire()
        applies.append((time.perf_counter() - start) * 1000)
        start = time.perf_counter()
        table.known("app")
        rows = producer_rows.table("p", "tx", "lid", states)
        table.replace(rows, "p", "app", 2 * number)
        commits.append((time.perf_counter() - start) * 1000)
        cpu.append((time.process_time() - used) * 1000)
        if number % EVERY == EVERY - 1:
            start = time.perf_counter()
            table.clean()
            cleans.append((time.perf_counter() - start) * 1000)
        if number + 1 in marks:
            add_marks(figures, table, number + 1, (applies, commits, cleans, cpu))
    figures.add("ledger record of 200 partitions", f"{record_size() / 1024:.0f} KiB")


def add_marks(
    figures: Figures, table: ProducersTable, count: int, times: tuple[list[float], ...]
) -> None:
    applies, commits, cleans, cpu = (each[-1000:] for each in times)
    (found,) = table.query("SELECT count(*) AS n FROM producers")
    size = table.size("p")
    assert size is not None
    assert size.files == 1
    assert found["n"] == TARGETS + 2
    cleaned = statistics.median(cleans[-1000 // EVERY :])
    files = [each for each in table.location.local.rglob("*") if each.is_file()]
    figures.add(
        f"producers after {count:,} commits",
        f"replay {statistics.median(applies):.1f} ms, commit {statistics.median(commits):.1f} ms, "
        f"99% {np.quantile(commits, 0.99):.0f} ms, maintenance {cleaned:.0f} ms, "
        f"CPU of both {statistics.median(cpu):.1f} ms, {found['n']} rows, {len(files):,} files, "
        f"{sum(each.stat().st_size for each in files) / 1e6:.1f} MB, "
        f"Arrow {pa.total_allocated_bytes() / 1e6:.0f} MB",
    )
