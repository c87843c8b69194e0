"""What dedup costs a micro-batch, as the number of known producers grows: without Spark."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.conftest import Figures
from support.deduped import generations, policy

from eos.dedup.generations import Generations
from eos.dedup.homes import STATES, BucketFile, Home, bucket_of, grown, write_states
from eos.transaction.port import TopicPartition

KNOWN = (10_000, 100_000, 1_000_000, 10_000_000)
ACTIVE = (100, 1_000)
ROUNDS = 5


@pytest.mark.timeout(1800)
def test_the_cost_follows_what_is_touched(tmp_path: Path, figures: Figures) -> None:
    for known in KNOWN:
        made = generations(tmp_path / str(known), policy())
        generation = filled(made, known)
        for active in ACTIVE:
            runs = []
            for number in range(1, ROUNDS + 1):
                generation, run = micro_batch(made, generation, known, active, number)
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


def names(numbers: np.ndarray) -> pa.Array:
    return pa.array([b"producer-%08d" % number for number in numbers], pa.binary())


def filled(made: Generations, count: int) -> str:
    """All of them in one partition, as if each had sent its first record."""
    folder, buckets = made.table.location, grown(4, count)
    (folder / "t-0").mkdir(parents=True)
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
            write_states(str(folder / path), rows)
            size = (folder / path).stat().st_size
            files[Home("t", 0, buckets, each)] = BucketFile(path, rows.num_rows, size)
    return made.commit(files, {}).generation


def micro_batch(
    made: Generations, generation: str, known: int, active: int, number: int
) -> tuple[str, tuple[float, float, float, int, int]]:
    """As the next process would: nothing is remembered. Its producers are those of each round."""
    # Those of one count are no part of the other's, so that each sends what is next.
    half = known // 2
    chosen = np.random.default_rng(active).choice(half, active, replace=False)
    chosen += half * ACTIVE.index(active)
    fresh = Generations(made.pipeline, made.table, made.policy, made.reading)
    marks = [time.perf_counter()]
    opened = fresh.begun(generation)
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
    return done.generation, (*spent, len(report["changed"]), report["buckets"])


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
