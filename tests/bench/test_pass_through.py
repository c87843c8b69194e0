"""Pass-through of one topic to another, beside Spark's own Kafka sink and loops without Spark.

Arms of one test take turns in one Spark application, on the same source and broker. `-k` chooses:
two_million, ten_million, parts, small, shape, and a shape's own name.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench.arms import ratios, run_arms
from bench.conftest import Figures
from bench.encoding import records
from bench.shapes import SHAPES, Shape
from bench.test_small_batches import medians
from support.kafka_io import fill_topic

from eos.local.embedded_kafka import EmbeddedKafka

LARGE, LARGE_BATCH = 2_000_000, 500_000
SMALL, SMALL_BATCH = 400_000, 20_000
HUGE, HUGE_BATCH = 10_000_000, 1_000_000
DISTINCT = 100_000  # far more than a record batch holds: repeating them compresses no better
ROUNDS = int(os.environ.get("EOS_BENCH_ROUNDS", "3"))
ARMS = {
    "eos": "eos",
    "spark": "Spark's sink, default",
    "spark_tuned": "Spark's sink, tuned",
    "confluent": "confluent-kafka's transactional loop",
    "kafka_python": "kafka-python's transactional loop",
}
OF_SPARK = ("eos", "spark", "spark_tuned")
SHARES = {"kafka_python": 0.1}  # it takes ten times as long as the others
PARTS = {
    "read": "Spark reads",
    "arrow": "+ rows to Arrow, to Python",
    "encode": "+ encode, record batches to the JVM",
    "shuffle": "+ shuffle",
    "eos": "+ write, transactions, start, checkpoint",
}

Run = dict[str, Any]


@pytest.mark.timeout(1800)
def test_two_million_records(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    fill_topic(broker.bootstrap, "bench.large", records(DISTINCT), LARGE)
    runs = run_arms(
        broker,
        tmp_path,
        "bench.large",
        list(ARMS),
        LARGE_BATCH,
        ROUNDS,
        1700,
        records=LARGE,
        shares=SHARES,
    )
    figures.keep("pass_through", runs)
    _tell(figures, f"{LARGE // 1_000_000} million records", runs, list(ARMS), LARGE)
    for arm, title in ARMS.items():
        mine = [run for run in runs if run["arm"] == arm]
        peaks = [max(run.get(name, 0) for run in mine) for name in ("jvm_mb", "python_mb")]
        figures.add(
            f"memory, {title}: JVM, Python processes", f"{peaks[0]:.0f} MB, {peaks[1]:.0f} MB"
        )


@pytest.mark.timeout(1800)
def test_ten_million_records(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    rows = records(DISTINCT)
    fill_topic(broker.bootstrap, "bench.warm", rows, LARGE)
    fill_topic(broker.bootstrap, "bench.huge", rows, HUGE)
    runs = run_arms(
        broker,
        tmp_path,
        "bench.huge",
        list(OF_SPARK),
        HUGE_BATCH,
        ROUNDS,
        1700,
        records=HUGE,
        warm="bench.warm",
    )
    figures.keep("pass_through_ten_million", runs)
    goals = {"spark": "1.4", "spark_tuned": "0.85"}
    _tell(figures, f"{HUGE // 1_000_000} million records", runs, OF_SPARK, HUGE, goals)


@pytest.mark.timeout(1200)
def test_parts_of_a_micro_batch(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    fill_topic(broker.bootstrap, "bench.parts", records(DISTINCT), LARGE)
    runs = run_arms(
        broker,
        tmp_path,
        "bench.parts",
        list(PARTS),
        LARGE_BATCH,
        ROUNDS,
        1100,
        records=LARGE,
        script="small_job.py",
    )
    figures.keep("parts", runs)
    before = (0.0, 0.0)
    for part, title in PARTS.items():
        now = _median(runs, part, _seconds), _median(runs, part, _cpu)
        added = f"{now[0] - before[0]:+.1f} s, {now[1] - before[1]:+.1f} CPU s"
        figures.add(f"{LARGE // 1_000_000} million records: {title}", added)
        before = now
    figures.add(f"a micro-batch of {LARGE_BATCH:,}: run, ledger record, offsets, end", _steps(runs))
    taken = [each for run in runs for each in run.get("steps_ms", ())]
    figures.add("the driver's steps", medians(taken))


@pytest.mark.timeout(900)
def test_small_micro_batches(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    fill_topic(broker.bootstrap, "bench.small", records(DISTINCT), SMALL)
    arms = ["eos", "spark"]
    runs = run_arms(broker, tmp_path, "bench.small", arms, SMALL_BATCH, ROUNDS, 800)
    assert {run["records"] for run in runs} == {SMALL}
    figures.keep("small_micro_batches", runs)
    for arm in arms:
        figures.add(
            f"a micro-batch of {SMALL_BATCH:,} records, {ARMS[arm]}, median",
            f"{_median(runs, arm, _trigger):.0f} ms",
        )
    figures.add("of it: run, ledger record, offsets, end", _steps(runs))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_shape(shape: Shape, broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    source = f"bench.{shape.name}"
    fill_topic(broker.bootstrap, source, shape.rows(), shape.records)
    runs = run_arms(
        broker,
        tmp_path,
        source,
        list(OF_SPARK),
        shape.batch,
        ROUNDS,
        800,
        records=shape.records,
        partitions=shape.partitions,
    )
    figures.keep(f"shape_{shape.name}", runs)
    _tell(figures, shape.name, runs, OF_SPARK, shape.records)


def _tell(
    figures: Figures,
    what: str,
    runs: list[Run],
    arms: Sequence[str],
    records: int,
    goals: dict[str, str] | None = None,
) -> None:
    """Seconds and CPU seconds of each arm for all records, and the ratios to eos."""
    broken = [run for run in runs if "failed" in run]
    runs = [run for run in runs if "failed" not in run]
    for run in runs:
        assert run["records"] == round(records * SHARES.get(run["arm"], 1)), run
    through = [arm for arm in arms if any(run["arm"] == arm for run in runs)]
    for arm in arms:
        why = [run["failed"].splitlines()[0] for run in broken if run["arm"] == arm]
        if why:
            told = f"failed in {len(why)} rounds: {why[0].rpartition('): ')[2]}"
            figures.add(f"{what}, {ARMS[arm]}", told)
    for arm in through:
        share = SHARES.get(arm, 1)
        seconds, cpu = _median(runs, arm, _seconds) / share, _median(runs, arm, _cpu) / share
        told = f" (from {share:.0%} of them)" if share < 1 else ""
        figures.add(f"{what}, {ARMS[arm]}", f"{seconds:.1f} s, {cpu:.1f} CPU s{told}")
    for arm in through[1:]:
        title = f"{what}, {ARMS[arm]} / eos"
        figures.add(f"{title}: time", _ratio(runs, arm, "seconds"), (goals or {}).get(arm, ""))
        figures.add(f"{title}: CPU", _ratio(runs, arm, "cpu_seconds"))


def _steps(runs: list[Run]) -> str:
    ours = [ms for run in runs for ms in run["transactions_ms"]]
    steps = [statistics.median(step) for step in zip(*ours, strict=True)]
    return ", ".join(f"{ms:.0f}" for ms in steps) + " ms"


def _trigger(run: Run) -> float:
    return statistics.median(run["trigger_ms"])


def _seconds(run: Run) -> float:
    return float(run["seconds"])


def _cpu(run: Run) -> float:
    return float(run["cpu_seconds"])


def _median(runs: list[Run], arm: str, figure: Callable[[Run], float]) -> float:
    return statistics.median(figure(run) for run in runs if run["arm"] == arm)


def _ratio(runs: list[Run], arm: str, figure: str) -> str:
    each = ratios(runs, arm, figure, SHARES.get(arm, 1))
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"
