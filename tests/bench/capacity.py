"""What hardware does a rate need? A model of CPU time, and a simulation of many cores.

    PYTHONPATH=tests .venv/bin/python -m bench.capacity [FOLDER ...]

It fits the model to the newest measurements of `./tests/run bench -k capacity`, and writes the
generated part of docs/capacity.md. The default folder is `.eos/bench`.
"""

from __future__ import annotations

import heapq
import json
import random
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.arms import CHECKOUT

PAGE = CHECKOUT / "docs" / "capacity.md"
RAW = CHECKOUT / "docs" / "benchmarks" / "capacity.json"
BEGIN, END = "<!-- bench.capacity writes this part -->", "<!-- end of that part -->"
SOURCES = 4  # source partitions
RECORD_BYTES = 187  # of a measured record: key and value
BUSY = 0.7  # of a core: above it, queues grow
SPREAD = 0.25  # of the duration of a task: the standard deviation, as a part of the mean
PARTITION_BYTES_S = 20_000_000  # a target partition's share of a rate
Run = Mapping[str, Any]


@dataclass(frozen=True)
class Shape:
    """A run: its records, in so many micro-batches, between so many partitions."""

    records: int
    micro_batches: int
    targets: int
    sources: int = SOURCES

    @property
    def row(self) -> list[float]:
        """What the cost is linear in: runs, micro-batches, reads and writes of a partition,
        records."""
        count = self.micro_batches
        return [1, count, count * self.sources, count * self.targets, self.records]


@dataclass(frozen=True)
class Model:
    """CPU seconds of a run, of a micro-batch, of a partition in it, and of a record."""

    run_s: float
    micro_batch_s: float
    source_s: float
    target_s: float
    record_s: float

    def cpu_s(self, shape: Shape) -> float:
        return float(np.dot(shape.row, self._costs))

    def error(self, runs: Sequence[Run], figure: str) -> float:
        """Return the median relative error of the model, over the measured runs."""
        return statistics.median(
            abs(self.cpu_s(shape_of(run)) / run[figure] - 1) for run in runs if run[figure]
        )

    @property
    def _costs(self) -> list[float]:
        return [self.run_s, self.micro_batch_s, self.source_s, self.target_s, self.record_s]

    def __str__(self) -> str:
        return (
            f"{self.run_s:.2f} s a run, {self.micro_batch_s * 1000:.0f} ms a micro-batch, "
            f"{self.source_s * 1000:.2f} ms a source partition, "
            f"{self.target_s * 1000:.2f} ms a target partition, {self.record_s * 1e6:.2f} s a "
            "million records"
        )


def shape_of(run: Run) -> Shape:
    return Shape(run["records"], run["micro_batches"], run["targets"], run["sources"])


def fit(runs: Sequence[Run], figure: str) -> Model:
    """Fit the model by least squares of the relative errors. No cost is negative."""
    used = [run for run in runs if run[figure]]
    rows = np.array([np.array(shape_of(run).row) / run[figure] for run in used])
    free = list(range(rows.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(rows[:, free], np.ones(len(rows)), rcond=None)
        negative = [at for at, cost in zip(free, found, strict=True) if cost < 0]
        if not negative:
            break
        free = [at for at in free if at not in negative]
    costs = np.zeros(rows.shape[1])
    costs[free] = found
    return Model(*costs.tolist())


def simulated_s(model: Model, shape: Shape, cores: int, seed: int = 1) -> float:
    """Return how long a run takes on so many cores, of which no other work takes anything.

    The costs of a micro-batch itself are the driver's: nothing runs beside them. The others are
    spread over two tasks for each core, of different durations. The micro-batch ends with its last
    task.
    """
    chosen, tasks = random.Random(seed), 2 * cores
    parallel_s = model.source_s * shape.sources + model.target_s * shape.targets
    parallel_s += model.record_s * shape.records / shape.micro_batches
    total = model.run_s
    for _ in range(shape.micro_batches):
        free = [0.0] * cores
        for _ in range(tasks):
            mean = parallel_s / tasks
            took = max(mean / 4, chosen.gauss(mean, SPREAD * mean))
            heapq.heappush(free, heapq.heappop(free) + took)
        total += model.micro_batch_s + max(free)
    return total


@dataclass(frozen=True)
class Need:
    """What a constant rate needs, with micro-batches of this many seconds."""

    bytes_s: float
    interval_s: float
    targets: int
    cores: float
    broker_cores: float
    driver_share: float  # of the interval, in which only the driver works

    @classmethod
    def of(cls, eos: Model, broker: Model, bytes_s: float, interval_s: float) -> Need:
        targets = max(4, round(bytes_s / PARTITION_BYTES_S))
        records = round(bytes_s / RECORD_BYTES * interval_s)
        batch = Shape(records, 1, targets, targets)
        own, theirs = (model.cpu_s(batch) - model.run_s for model in (eos, broker))
        share = eos.micro_batch_s / interval_s
        working_s = interval_s * (1 - share)
        cores = (own - eos.micro_batch_s) / working_s / BUSY
        return cls(bytes_s, interval_s, targets, cores, theirs / interval_s / BUSY, share)


def newest(folders: Iterable[Path]) -> dict[str, Any]:
    """Return the newest measurement and its machine, or the one that the page was written from."""
    found: dict[str, Any] = json.loads(RAW.read_text()) if RAW.exists() else {}
    for path in sorted((p for each in folders for p in each.glob("*.json")), key=_file_name):
        content = json.loads(path.read_text(encoding="utf-8"))
        if "capacity" in content["measurements"]:
            found = {"machine": content["machine"], "runs": content["measurements"]["capacity"]}
    return found


def _file_name(path: Path) -> str:
    return path.name  # its time


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rest])


def text(measured: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    runs = measured["runs"]
    eos, broker = fit(runs, "cpu_seconds"), fit(runs, "broker_cpu_seconds")
    costs = [
        [
            *("CPU time", "a run", "a micro-batch", "a source partition in it"),
            *("a target partition in it", "a million records"),
        ]
    ]
    costs += [
        [
            name,
            f"{model.run_s:.2f} s",
            f"{model.micro_batch_s * 1000:.0f} ms",
            f"{model.source_s * 1000:.2f} ms",
            f"{model.target_s * 1000:.2f} ms",
            f"{model.record_s * 1e6:.2f} s",
        ]
        for name, model in (("eos", eos), ("the broker", broker))
    ]
    shapes = list(dict.fromkeys(shape_of(run) for run in runs))
    checks = [
        ["records", "micro-batches", "source partitions", "target partitions", "measured", "model"]
    ]
    for shape in shapes:
        each = [run["cpu_seconds"] for run in runs if shape_of(run) == shape]
        measured_s = f"{statistics.median(each):.1f} s ({min(each):.1f} to {max(each):.1f})"
        sizes = (shape.records, shape.micro_batches, shape.sources, shape.targets)
        checks.append([*(f"{size:,}" for size in sizes), measured_s, f"{eos.cpu_s(shape):.1f} s"])
    about = f"Measured on {measured['machine']}. The median error of the model is "
    about += f"{eos.error(runs, 'cpu_seconds'):.0%} for eos, and "
    about += f"{broker.error(runs, 'broker_cpu_seconds'):.0%} for the broker."
    return "\n\n".join(
        [
            _table(costs),
            about,
            _table(checks),
            "### A constant rate",
            _needs(eos, broker),
            "### A backfill of 100 GB",
            _backfill(eos),
        ]
    )


def _needs(eos: Model, broker: Model) -> str:
    rows = [
        [
            "rate",
            "micro-batch every",
            "source and target partitions",
            "cores of executors",
            "cores of brokers, one replica",
            "driver alone",
        ]
    ]
    for bytes_s, interval_s in ((10e6, 1), (100e6, 1), (1e9, 1), (1e9, 10), (10e9, 1), (10e9, 10)):
        need = Need.of(eos, broker, bytes_s, interval_s)
        rate = f"{bytes_s / 1e9:g} GB/s" if bytes_s >= 1e9 else f"{bytes_s / 1e6:g} MB/s"
        cores = [f"{need.cores:,.1f}", f"{need.broker_cores:,.1f}"]
        share = f"{need.driver_share:.0%} of the time"
        rows.append([rate, f"{interval_s} s", f"{need.targets:,}", *cores, share])
    return _table(rows)


def _backfill(eos: Model) -> str:
    records = round(100e9 / RECORD_BYTES)
    rows = [["cores", "micro-batches of 1 million", "of 4 million", "of 40 million"]]
    for cores in (2, 16, 100, 1_000):
        shapes = [
            Shape(records, -(-records // size), max(4, 2 * cores), max(4, 2 * cores))
            for size in (1_000_000, 4_000_000, 40_000_000)
        ]
        rows.append([f"{cores:,}", *(_span(simulated_s(eos, each, cores)) for each in shapes)])
    return _table(rows)


def _span(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.0f} s"


def write(measured: Mapping[str, Any]) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text(measured)}\n\n{END}{after}", encoding="utf-8")
    RAW.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    folders = [Path(word) for word in sys.argv[1:]] or [CHECKOUT / ".eos" / "bench"]
    measured = newest(folders)
    if not measured:
        sys.exit("nothing to write: run ./tests/run bench -k capacity first")
    write(measured)
