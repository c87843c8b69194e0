"""What a step in Arrow or pandas costs that returns what it got: with one pass of Python, where the
sinks take its columns as they are, and with two."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import pytest
from bench.arms import run_arms
from bench.conftest import Figures
from bench.encoding import records
from support.kafka.kafka_io import fill_topic

from eos.local.embedded_kafka import EmbeddedKafka

RECORDS, BATCH = 2_000_000, 500_000
ROUNDS = int(os.environ.get("EOS_BENCH_ROUNDS", "3"))
COUNTED = {"seconds": "time", "cpu_seconds": "CPU"}
ARMS = {
    "none": "no step",
    "arrow": "a step in Arrow",
    "arrow_sql": "a step in Arrow, and SQL in the sink",
    "pandas": "a step in pandas",
    "pandas_sql": "a step in pandas, and SQL in the sink",
}


@pytest.mark.timeout(1800)
def test_row_steps(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    fill_topic(broker.bootstrap, "bench.rows", records(100_000), RECORDS)
    runs = run_arms(
        broker, tmp_path, "bench.rows", list(ARMS), BATCH, ROUNDS, 1700, script="rows_job.py"
    )
    assert {run["records"] for run in runs} == {RECORDS}
    figures.keep("row_steps", runs)
    found = {(run["arm"], run["round"]): run for run in runs}
    for arm, title in ARMS.items():
        mine = [run for run in runs if run["arm"] == arm]
        seconds, cpu = (
            statistics.median(r[name] for r in mine) for name in ("seconds", "cpu_seconds")
        )
        figures.add(f"2 million records, {title}", f"{seconds:.1f} s, {cpu:.1f} CPU s")
    for kind in ("arrow", "pandas"):
        for name, what in COUNTED.items():
            ratios = [
                found[f"{kind}_sql", at][name] / found[kind, at][name]
                for arm, at in found
                if arm == kind
            ]
            shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            figures.add(f"{kind}: two passes / one: {what}", shown)
