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
from pathlib import Path
from typing import Any

from bench.arms import CHECKOUT
from bench.plot import Chart, Line, Point

CHARTS = CHECKOUT / "docs" / "benchmarks"
SMALL = {
    "eos": "eos",
    "spark": "Spark's sink, default",
    "spark_files": "Spark's sink, our checkpoint setting",
}
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


DRAWINGS = {"small": Drawing(small, "steady_stream"), "dedup": Drawing(dedup, "follows_what")}


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
