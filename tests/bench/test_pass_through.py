"""Pass-through of one topic to another, beside Spark's own Kafka sink, in one Spark application."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.arms import run_arms
from bench.conftest import Figures
from bench.encoding import records
from support.volume import fill_topic

from eos.launch.embedded import EmbeddedKafka

LARGE, LARGE_BATCH = 2_000_000, 500_000
SMALL, SMALL_BATCH = 400_000, 20_000
DISTINCT = 100_000  # far more than a record batch holds: repeating them compresses no better
ROUNDS = 3
ARMS = {"eos": "eos", "spark": "Spark's sink, default", "spark_tuned": "Spark's sink, tuned"}

Run = dict[str, Any]


@pytest.mark.timeout(1800)
def test_two_million_records(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    fill_topic(broker.bootstrap, "bench.large", records(DISTINCT), LARGE)
    runs = run_arms(broker, tmp_path, "bench.large", list(ARMS), LARGE_BATCH, ROUNDS, 1500)
    assert {run["records"] for run in runs} == {LARGE}
    figures.keep("pass_through", runs)
    for arm, title in ARMS.items():
        figures.add(
            f"{LARGE // 1_000_000} million records, {title}",
            f"{_median(runs, arm, _seconds):.1f} s, {_median(runs, arm, _cpu):.1f} CPU s",
        )
    for arm in list(ARMS)[1:]:
        figures.add(
            f"{LARGE // 1_000_000} million records, time of {ARMS[arm]} / time of eos",
            _ratio(runs, arm, _seconds),
            "1" if arm == "spark" else "",
        )


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
    ours = [ms for run in runs for ms in run["transactions_ms"]]
    steps = [statistics.median(step) for step in zip(*ours, strict=True)]
    figures.add(
        "of it: run, ledger record, offsets, end", ", ".join(f"{ms:.0f}" for ms in steps) + " ms"
    )


def _seconds(run: Run) -> float:
    return float(run["seconds"])


def _cpu(run: Run) -> float:
    return float(run["cpu_seconds"])


def _trigger(run: Run) -> float:
    return statistics.median(run["trigger_ms"])


def _median(runs: list[Run], arm: str, figure: Callable[[Run], float]) -> float:
    return statistics.median(figure(run) for run in runs if run["arm"] == arm)


def _ratio(runs: list[Run], arm: str, figure: Callable[[Run], float]) -> str:
    """Of neighbours: what the machine did to one round it did to both."""
    by_round = {(run["arm"], run["round"]): figure(run) for run in runs}
    ratios = [by_round[arm, number] / by_round["eos", number] for number in range(1, ROUNDS + 1)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
