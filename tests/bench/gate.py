"""Has eos become slower? A short benchmark beside Spark's tuned sink, which fails if it has.

    PYTHONPATH=tests .venv/bin/python -m bench.gate             # compares with gate.json
    PYTHONPATH=tests .venv/bin/python -m bench.gate --record    # writes gate.json

It compares the CPU seconds of both, without the broker's, in the same run. A busy machine slows
both, so their ratio says more than seconds. The median of several rounds counts. If it is too high,
a second run decides.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.compare import Comparison
from bench.peers.workloads import Workload
from support.kafka.brokers import abandon

from eos.local.embedded_kafka import EmbeddedKafka

RECORD = Path(__file__).with_name("gate.json")
RISE_MAX = 0.30
RUNS_MAX = 2
ROUNDS = 4  # and one before them, which warms up
WORKLOAD = Workload(
    "gate",
    "pass-through",
    records=1_000_000,  # so that the startup is a small part
    batch=250_000,
    peers=("eos", "spark_tuned"),
    warm_share=1.0,
)


@dataclass(frozen=True)
class Measured:
    """The CPU seconds of both in each round, and what was wrong with a peer or its output."""

    eos: Sequence[float]
    spark: Sequence[float]
    problem: str = ""

    @property
    def ratio(self) -> float:
        return statistics.median(
            eos / spark for eos, spark in zip(self.eos, self.spark, strict=True)
        )

    def __str__(self) -> str:
        pairs = zip(self.eos, self.spark, strict=True)
        rounds = ", ".join(f"{eos:.2f} / {spark:.2f}" for eos, spark in pairs)
        return f"CPU seconds of eos / Spark's tuned sink: {rounds}; median ratio {self.ratio:.2f}"


def measure() -> Measured:
    """Run both in turns, on a broker of their own."""
    with (
        tempfile.TemporaryDirectory(prefix="eos-gate-") as name,
        EmbeddedKafka(Path(name) / "broker") as broker,
    ):
        runs = Comparison(WORKLOAD, broker, Path(name)).runs(ROUNDS)
        abandon(broker)
    problems = [run.get("failed") or run["wrong"] for run in runs]
    problem = next(filter(None, problems), "")
    if problem:
        return Measured((), (), problem)
    runs.sort(key=lambda run: run["round"])
    eos, spark = (
        [run["cpu_seconds"] for run in runs if run["peer"] == name] for name in WORKLOAD.peers
    )
    return Measured(eos, spark)


def check(measure_once: Callable[[], Measured], recorded: float) -> int:
    """Return the exit code: 1 if each of two runs is too slow, or if an output is wrong."""
    most = recorded * (1 + RISE_MAX)
    for number in range(1, RUNS_MAX + 1):
        measured = measure_once()
        if measured.problem:
            print(f"gate: a peer failed: {measured.problem}")
            return 1
        print(f"gate: run {number}: {measured}; recorded {recorded:.2f}, at most {most:.2f}")
        if measured.ratio <= most:
            return 0
    print(
        f"gate: beside Spark's tuned sink, eos takes over {RISE_MAX:.0%} more CPU time than "
        "recorded. Find the commit that did it. If the cost is intended, record a new ratio: "
        "`PYTHONPATH=tests .venv/bin/python -m bench.gate --record`"
    )
    return 1


def record(measured: Measured) -> int:
    if measured.problem:
        print(f"gate: a peer failed: {measured.problem}")
        return 1
    content = {
        "cpu_ratio": round(measured.ratio, 3),
        "eos_cpu_seconds": list(measured.eos),
        "spark_tuned_cpu_seconds": list(measured.spark),
        "records": WORKLOAD.records,
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }
    RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")
    print(f"gate: {measured}, written to {RECORD}")
    return 0


def main(words: Sequence[str]) -> int:
    if words == ["--record"]:
        return record(measure())
    if not RECORD.exists():
        print(f"gate: {RECORD} is missing. Record a ratio on an idle machine: --record")
        return 2
    return check(measure, json.loads(RECORD.read_text(encoding="ascii"))["cpu_ratio"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
