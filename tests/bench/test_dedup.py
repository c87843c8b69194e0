"""What dedup costs a micro-batch: as the number of known producers grows, without Spark; and a run
with a million producers, beside one without dedup."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bench.arms import run_arms
from bench.conftest import Figures
from confluent_kafka import Producer
from support.dedup import policy, versions_in
from support.kafka import kafka_io

from eos.dedup.buckets import STATES, BucketFile, BucketKey, bucket_of, grown_buckets, write_states
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.stamp_shards import STAMPS
from eos.dedup.state_versions import StateVersions
from eos.kafka.api import TopicPartition
from eos.local.embedded_kafka import EmbeddedKafka

KNOWN = (10_000, 100_000, 1_000_000, 10_000_000)
ACTIVE = (100, 1_000)
ROUNDS = 5
MILLION, PARTITIONS = 1_000_000, 4
BATCH = 500_000
REPEATED = int(os.environ.get("EOS_BENCH_ROUNDS", "3"))
ARMS = {
    "without": "without dedup",
    "partition": "with `scope: partition`",
    "producer": "with `scope: producer`",
    "json_without": "JSON in, SQL, JSON out, without dedup",
    "json_partition": "JSON in, SQL, JSON out, with `scope: partition`",
    "json_producer": "JSON in, SQL, JSON out, with `scope: producer`",
}
PARTITIONS_SPREAD = 8


@pytest.mark.timeout(1800)
def test_the_cost_follows_what_is_touched(tmp_path: Path, figures: Figures) -> None:
    steps: list[dict[str, Any]] = []
    for known in KNOWN:
        made = versions_in(tmp_path / str(known), policy())
        version = filled(made, known)
        for active in ACTIVE:
            runs = []
            for number in range(1, ROUNDS + 1):
                version, run = micro_batch(made, version, known, active, number)
                runs.append(run)
            begin, judge, commit, buckets, of = (
                statistics.median(each) for each in zip(*runs, strict=True)
            )
            figures.add(
                f"{known:,} producers known, a record of each of {active:,}: {buckets:,.0f} of "
                f"{of:,} buckets touched",
                f"begin {begin * 1000:.0f}, judge {judge * 1000:.0f}, "
                f"commit {commit * 1000:.0f} ms",
            )
            spent_ms = [round(sum(run[:3]) * 1000, 1) for run in runs]
            steps.append({"known": known, "active": active, "ms": spent_ms})
    figures.keep("dedup_known", steps)


@pytest.mark.timeout(1800)
def test_a_million_active_producers(
    broker: EmbeddedKafka, tmp_path: Path, figures: Figures
) -> None:
    """Each sends a record, and then another: the second round, when all are known, counts."""
    topic = "bench.dedup"
    kafka_io.create_topics(broker.bootstrap, PARTITIONS, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "log_level": 3})
    value = b'{"id": %d, "customer": "customer-%d", "amount": 12.5, "note": "%s"}'
    note = b"x" * 76  # 150 bytes in all
    for sequence in (b"0", b"1"):
        for number in range(MILLION):
            headers = [("p", b"producer-%07d" % number), ("e", b"0"), ("s", sequence)]
            while True:
                try:
                    text = value % (number, number % 1000, note)
                    producer.produce(topic, text, partition=number % PARTITIONS, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(120) == 0
    runs = run_arms(
        broker,
        tmp_path,
        topic,
        list(ARMS),
        BATCH,
        REPEATED,
        1700,
        partitions=PARTITIONS,
        script="dedup_job.py",
    )
    assert {run["known_records"] for run in runs} == {MILLION}
    figures.keep("dedup_million", runs)
    for arm, told in ARMS.items():
        mine = [run for run in runs if run["arm"] == arm]
        seconds, cpu = (
            statistics.median(run[name] for run in mine)
            for name in ("known_seconds", "known_cpu_seconds")
        )
        figures.add(
            f"1,000,000 active producers, {told}",
            f"{MILLION / seconds:,.0f} records/s, {cpu:.1f} CPU s",
        )
    for arm, told in ARMS.items():
        if arm.endswith("without"):
            continue
        for name, what in {"known_seconds": "throughput", "known_cpu_seconds": "CPU time"}.items():
            figures.add(f"the part of the {what} that goes, {told}", _part(runs, arm, name), "30%")


def _part(runs: list[dict[str, Any]], arm: str, name: str) -> str:
    """Of neighbours: what the machine did to one arm of a round it did to the other."""
    found = {(run["arm"], run["round"]): run[name] for run in runs}
    without = "json_without" if arm.startswith("json") else "without"
    parts = [1 - found[without, at] / found[arm, at] for of, at in found if of == arm]
    return f"{statistics.median(parts):.0%} ({min(parts):.0%} to {max(parts):.0%})"


@pytest.mark.timeout(1800)
def test_one_shard_of_spread_producers(tmp_path: Path, figures: Figures) -> None:
    """What a task holds and does: a sixteenth of a micro-batch of 8 million records, in order, in
    turns over eight partitions, or as one producer's that was read a partition after the other."""
    count = 500_000
    for what, producers in (("500,000 producers", count), ("one producer", 1)):
        made = versions_in(tmp_path / str(producers), policy(window=1_000_000))
        version = ""
        for turn in range(2):
            fresh = StateVersions(made.pipeline, made.table, made.policy, made.reading)
            opened = fresh.begin(version)
            assert isinstance(opened.stage, ProducerScopeStage)
            batches = shard_rows(count, producers, turn)
            begun, rss = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            opened.stage.validate(batches)
            spent = time.perf_counter() - begun
            grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss) / 1024
            done = opened.commit()
            assert done.summary["verdicts"] == {"appended": count}
            version = done.version
        figures.add(
            f"a shard with {count:,} records of {what}, the second time",
            f"{spent:.2f} s, {grown_mb:,.0f} MB more at the most",
        )


def shard_rows(count: int, producers: int, turn: int) -> list[tuple[int, pa.RecordBatch]]:
    """All in shard 0, whatever their ids, as other tasks packed them: 10,000 at a time."""
    at = np.arange(count)
    order = np.argsort(at % PARTITIONS_SPREAD, kind="stable")
    number, who = (at // producers + turn * (count // producers))[order], (at % producers)[order]
    partition = (at % PARTITIONS_SPREAD)[order]
    offset = (at // PARTITIONS_SPREAD + turn * count)[order]
    table = pa.table(
        [
            pa.array(offset << 16 | partition),
            names(who),
            pa.array(np.zeros(count, np.int64)),
            pa.array(number),
            pa.array(["topic"] * count),
        ],
        schema=STAMPS,
    )
    return [(0, batch) for batch in table.to_batches(max_chunksize=10_000)]


def names(numbers: np.ndarray) -> pa.Array:
    return pa.array([b"producer-%08d" % number for number in numbers], pa.binary())


def filled(made: StateVersions, count: int) -> str:
    """All of them in one partition, as if each had sent its first record."""
    folder, buckets = made.table.location, grown_buckets(4, count)
    (folder.local / "t-0").mkdir(parents=True)
    producers = names(np.arange(count))
    bucket = bucket_of(producers, buckets)
    order = np.argsort(bucket, kind="stable")
    starts = np.searchsorted(bucket[order], np.arange(buckets + 1))
    zeros = pa.array(np.zeros((count, 1), np.int64).tolist(), pa.list_(pa.int64()))
    ones = pa.array(np.ones(count, np.int64))
    now = pa.array(np.full(count, int(time.time() * 1000)))
    columns = [producers, pa.array(np.zeros(count, np.int64)), zeros, zeros, ones, now]
    states = pa.table(columns, schema=STATES)
    files = {}
    for each in range(buckets):
        rows = states.take(pa.array(order[starts[each] : starts[each + 1]]))
        if rows.num_rows:
            path = f"t-0/first-{each}.parquet"
            size = write_states(folder, path, rows)
            files[BucketKey("t", 0, buckets, each)] = BucketFile(path, rows.num_rows, size)
    return str(made.table.commit(files, made.rules))


def micro_batch(
    made: StateVersions, version: str, known: int, active: int, number: int
) -> tuple[str, tuple[float, float, float, int, int]]:
    """As the next process would: nothing is remembered. Its producers are those of each round."""
    # Those of one count are no part of the other's, so that each sends what is next.
    half = known // 2
    chosen = np.random.default_rng(active).choice(half, active, replace=False)
    chosen += half * ACTIVE.index(active)
    fresh = StateVersions(made.pipeline, made.table, made.policy, made.reading)
    marks = [time.perf_counter()]
    opened = fresh.begin(version)
    marks.append(time.perf_counter())
    for codes in opened.stage.codes(rows(chosen, number)):
        assert set(codes.to_pylist()) == {0}
    marks.append(time.perf_counter())
    (report,) = opened.reports().values()
    assert TopicPartition(report["topic"], report["partition"]) == ("t", 0)
    marks.append(time.perf_counter())
    done = opened.commit()
    marks.append(time.perf_counter())
    spent = (marks[1] - marks[0], marks[2] - marks[1], marks[4] - marks[3])
    return done.version, (*spent, len(report["changed"]), report["buckets"])


def rows(chosen: np.ndarray, number: int) -> Iterator[tuple[pa.Array, ...]]:
    count = len(chosen)
    yield (
        pa.array(["t"] * count),
        pa.array(np.zeros(count, np.int32)),
        pa.array(np.arange(count, dtype=np.int64) + number * count),
        names(chosen),
        pa.array(np.zeros(count, np.int64)),
        pa.array(np.full(count, number, np.int64)),
    )
