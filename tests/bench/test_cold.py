"""The first micro-batch of a process beside its later ones, with and without what makes it quick.

Each start is a process of its own, with the class-data archive that an earlier one left; the arms
take turns. CPU seconds say more than times where other work runs on the same cores.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bench.arms import archive_of, command, run_arms
from bench.conftest import Figures
from bench.encoding import records
from support.kafka.kafka_io import fill_topic

from eos.deadline import Deadline
from eos.local.embedded_kafka import EmbeddedKafka

SOURCE, SIZE, TRIGGERS = "bench.cold", 1_000, 12
WARM = TRIGGERS // 2  # from here on micro-batches count as warm
ARCHIVE_MS_MAX = 300_000
STARTS = int(os.environ.get("EOS_BENCH_ROUNDS", "3"))
ARMS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "Spark's code from its archive": {
        "without": ["installed"],
        "conf": {"spark.python.daemon.module": "pyspark.daemon"},
    },
}

Run = dict[str, Any]


@pytest.mark.timeout(1800)
def test_cold(broker: EmbeddedKafka, tmp_path: Path, figures: Figures) -> None:
    count = SIZE * TRIGGERS
    fill_topic(broker.bootstrap, SOURCE, records(count), count)
    archive = archive_of(command())
    if archive and not archive.options():
        run_arms(broker, tmp_path, SOURCE, ["eos"], SIZE, 0, 300)
        enough = Deadline.after_ms(ARCHIVE_MS_MAX)
        while not archive.options() and not enough.has_passed:
            time.sleep(0.5)
    found: dict[str, list[Run]] = {arm: [] for arm in ARMS}
    for number in range(STARTS):
        for turn, (arm, options) in enumerate(ARMS.items()):
            place = tmp_path / f"{number}-{turn}"
            place.mkdir()
            job = {"script": "cold_job.py", **options}
            found[arm] += run_arms(broker, place, SOURCE, ["eos"], SIZE, 0, 300, **job)
    figures.keep("cold", found)
    for arm, runs in found.items():
        cold, warm = _each(runs, _cold_ms), _each(runs, _warm_ms)
        more = [c - w for c, w in zip(cold, warm, strict=True)]
        figures.add(f"first micro-batch, {arm}", _shown(cold, "ms"))
        figures.add(f"a later one, {arm}", _shown(warm, "ms"))
        figures.add(f"the first one takes longer by, {arm}", _shown(more, "ms"), "2,000 ms")
        committed = [run["committed_s"] for run in runs]
        figures.add(f"from spark-submit to the first commit, {arm}", _shown(committed, "s"))
        used = [run["committed_cpu_s"] for run in runs]
        figures.add(f"CPU seconds until then, {arm}", _shown(used, "s"))


def _each(runs: Sequence[Run], what: Any) -> list[float]:
    return [what(run) for run in runs]


def _cold_ms(run: Run) -> float:
    return float(run["trigger_ms"][0])


def _warm_ms(run: Run) -> float:
    return statistics.median(run["trigger_ms"][WARM:])


def _shown(each: Sequence[float], unit: str) -> str:
    digits = 1 if unit == "s" else 0
    median, least, most = (
        f"{value:,.{digits}f}" for value in (statistics.median(each), min(each), max(each))
    )
    return f"{median} {unit} ({least} to {most})"
