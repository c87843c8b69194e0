"""Draws the charts of the docs out of what benchmarks kept, the newest of each measurement.

    PYTHONPATH=tests .venv/bin/python -m bench.curves [FOLDER ...]

A folder holds what `./tests/run bench` left; without any it is `.eos/bench`. A chart of which
nothing is there stays as it was, and it is said what to run. Tables of what was drawn are printed.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.arms import CHECKOUT, ratios
from bench.plot import Chart, Line, Point

CHARTS = CHECKOUT / "docs" / "benchmarks"
SHAPES = {"spark": "Spark's sink, default", "spark_tuned": "Spark's sink, tuned"}
SMALL = {
    "eos": "eos",
    "spark": "Spark's sink, default",
    "spark_files": "Spark's sink, our checkpoint setting",
}
RATIO = "records a second, eos / Spark's sink"
FIRST = 3  # micro-batches of a turn, which are the query's start

Kept = Mapping[str, Any]


def kept(folders: Iterable[Path]) -> dict[str, Any]:
    """Measurements by their name: of the newest file that has it."""
    found: dict[str, Any] = {}
    for path in sorted((p for each in folders for p in each.glob("*.json")), key=_name):
        found |= json.loads(path.read_text(encoding="utf-8"))["measurements"]
    return found


def _name(path: Path) -> str:
    return path.name  # its time


def by_shape(title: str, x: str, sizes: Mapping[str, float], found: Kept) -> Chart | None:
    """eos beside each kind of Spark's sink; `sizes` by a shape's name."""
    runs = {size: found.get(f"shape_{name}") for name, size in sizes.items()}
    there = {size: each for size, each in runs.items() if each}
    lines = []
    for arm, name in SHAPES.items():
        each = {size: ratios(of, arm, "seconds") for size, of in there.items()}
        points = [_point(size, values) for size, values in each.items() if values]
        often = {size: _failed(of, arm) for size, of in there.items()}
        lines.append(Line(name, points, {size: told for size, told in often.items() if told}))
    return Chart(title, x, RATIO, lines, even=1.0) if there else None


def _failed(runs: Sequence[Mapping[str, Any]], arm: str) -> str:
    rounds = [run for run in runs if run["arm"] == arm]
    count = sum("failed" in run for run in rounds)
    return f"{count} of {len(rounds)}" if count else ""


def small(found: Kept) -> Chart | None:
    """Medians of all micro-batches of an arm, and of its single turns."""
    there = {
        int(name.removeprefix("small_")): runs for name, runs in found.items() if _steady(name)
    }
    lines = []
    for arm, name in SMALL.items():
        points = []
        for size, runs in there.items():
            turns = [run["trigger_ms"][FIRST:] for run in runs if run["arm"] == arm]
            medians = [statistics.median(turn) for turn in turns]
            all_of_them = statistics.median([ms for turn in turns for ms in turn])
            points.append(Point(size, min(medians), all_of_them, max(medians)))
        lines.append(Line(name, points))
    title = "Small micro-batches"
    return (
        Chart(title, "records a micro-batch", "ms a micro-batch, median", lines) if there else None
    )


def _steady(name: str) -> bool:
    return name.startswith("small_") and name.removeprefix("small_").isdigit()


def dedup(found: Kept) -> Chart | None:
    there = found.get("dedup_known", [])
    lines = [
        Line(
            f"a record of each of {active:,}",
            [_point(each["known"], each["ms"]) for each in there if each["active"] == active],
        )
        for active in sorted({each["active"] for each in there})
    ]
    title = "What dedup adds to a micro-batch"
    return (
        Chart(title, "producers known", "ms a micro-batch", lines, is_log=True) if there else None
    )


def _point(x: float, values: Sequence[float]) -> Point:
    return Point(x, min(values), statistics.median(values), max(values))


@dataclass(frozen=True, slots=True)
class Drawing:
    chart: Callable[[Kept], Chart | None]
    words: str  # for `./tests/run bench -k`
    shapes: Sequence[str] = ()  # of `shapes.py`, that are in it


def over(title: str, x: str, words: str, sizes: Mapping[str, float]) -> Drawing:
    return Drawing(partial(by_shape, title, x, sizes), words, list(sizes))


BATCHES = {f"batch_{size}": size for size in (1_000, 10_000, 100_000, 1_000_000, 4_000_000)}
TARGETS = {f"targets_{count}": count for count in (1, 4, 50, 200)}
BYTES = {"value_180b": 180, "value_1kb": 1_000, "value_10kb": 10_000}
DRAWINGS = {
    "batches": over(
        "Throughput over the micro-batch's size", "records a micro-batch", "batch_", BATCHES
    ),
    "targets": over("Throughput over target partitions", "target partitions", "targets", TARGETS),
    "records": over("Throughput over the record's size", "bytes a record", "value", BYTES),
    "small": Drawing(small, "steady_stream"),
    "dedup": Drawing(dedup, "follows_what"),
}


def draw(found: Kept, into: Path) -> list[str]:
    """What there is to say of each chart."""
    told = []
    for name, drawing in DRAWINGS.items():
        chart = drawing.chart(found)
        if chart is None:
            told.append(f"{name}: nothing is kept, run ./tests/run bench -k {drawing.words}")
            continue
        into.mkdir(parents=True, exist_ok=True)
        (into / f"{name}.svg").write_text(f"{chart.svg()}\n", encoding="utf-8")
        told.append(f"{name}: {chart.title}, {chart.y}\n\n{chart.table()}\n")
    return told


def main(words: Sequence[str]) -> None:
    given = [Path(word) for word in words] or [CHECKOUT / ".eos" / "bench"]
    print("\n".join(draw(kept(given), CHARTS)))


if __name__ == "__main__":
    main(sys.argv[1:])
