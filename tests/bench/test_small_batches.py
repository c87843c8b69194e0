"""Steady streams of small micro-batches, beside Spark's own Kafka sink, in one Spark application.

The arms take turns of some dozen micro-batches each, on the same source. What a micro-batch of ours
spends is broken down by the driver's steps, and that of each arm by Spark's phases.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bench.arms import run_arms
from bench.conftest import Figures
from bench.encoding import records
from support.kafka.kafka_io import fill_topic

from eos.local.embedded_kafka import EmbeddedKafka

TRIGGERS, FIRST = 55, 3  # of a turn; the first of them are the query's start
ROUNDS = int(os.environ.get("EOS_BENCH_ROUNDS", "3"))  # by three, over 150 micro-batches a size
ARMS = {
    "eos": "eos",
    "spark": "Spark's sink",
    "spark_files": "Spark's sink with our checkpoint setting",
}

Run = dict[str, Any]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("size", [10, 100, 1_000, 10_000])
def test_steady_stream(size: int, broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    source, count = f"bench.steady.{size}", size * TRIGGERS
    fill_topic(broker.bootstrap, source, records(min(count, 100_000)), count)
    runs = run_arms(broker, tmp_path, source, list(ARMS), size, ROUNDS, 1500, script="small_job.py")
    assert {run["records"] for run in runs} == {count}
    figures.keep(f"small_{size}", runs)
    what = f"a micro-batch of {size:,} records"
    for arm, title in ARMS.items():
        each = [ms for run in runs if run["arm"] == arm for ms in run["trigger_ms"][FIRST:]]
        shown = f"{statistics.median(each):.0f} ms, {_p99(each):.0f} ms ({len(each)} of them)"
        figures.add(f"{what}, {title}, median and p99", shown)
    for arm, title in list(ARMS.items())[1:]:
        for name, figure, goal in (("median", statistics.median, "1.3"), ("p99", _p99, "1.5")):
            shown = _ratio(runs, arm, figure)
            figures.add(f"eos / {title}, {name}", shown, goal if arm == "spark" else "")
    for arm, title in ARMS.items():
        phases = [each for run in runs if run["arm"] == arm for each in run["phases_ms"][FIRST:]]
        figures.add(f"Spark's phases, {title}", medians(phases))
    figures.add("the driver's steps, eos", medians(_of_ours(runs, "steps_ms")))
    calls = statistics.median(_of_ours(runs, "jvm_calls"))
    figures.add("calls into the JVM, eos", f"{calls:.0f}")


def _of_ours(runs: Iterable[Run], what: str) -> list[Any]:
    return [each for run in runs if run["arm"] == "eos" for each in run[what][FIRST:]]


def _p99(each: Sequence[float]) -> float:
    return sorted(each)[max(0, round(len(each) * 0.99) - 1)]


def _ratio(runs: Sequence[Run], arm: str, figure: Any) -> str:
    """Of all, and the least and most of neighbouring turns."""

    def of(arm: str, number: int | None = None) -> float:
        chosen = [r for r in runs if r["arm"] == arm and number in (None, r["round"])]
        return float(figure([ms for run in chosen for ms in run["trigger_ms"][FIRST:]]))

    each = [of("eos", number) / of(arm, number) for number in range(1, ROUNDS + 1)]
    return f"{of('eos') / of(arm):.2f} ({min(each):.2f} to {max(each):.2f})"


def medians(each: Sequence[dict[str, float]]) -> str:
    names = dict.fromkeys(name for one in each for name in one)
    found = {name: statistics.median(one.get(name, 0) for one in each) for name in names}
    return ", ".join(f"{name} {ms:.0f}" for name, ms in found.items())
