"""The three example pipelines of docs/combinations.md under names of one test, and their totals."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from eos.launch.demo import Demo
from eos.stamp import EPOCH, PRODUCER, SEQUENCE
from eos.testing.outside import fill
from support import lake
from support.documents import ROOT
from support.project import Project

NAMES = ("sales_clean", "sales_by_hour", "sales_lake")
SALES, UNPAID = range(1000), 500
DAY, CENTS = "2026-11-21", 100


def declared(first: Project) -> tuple[Project, ...]:
    """Copy the examples beside each other; their topics begin with the first project's name."""
    made = []
    for example in NAMES:
        project = replace(first, name=f"{first.name}_{example}")
        place = project.folder / "pipelines" / project.name
        shutil.copytree(
            ROOT / "pipelines" / example, place, ignore=shutil.ignore_patterns("__pycache__")
        )
        for path in place.iterdir():
            text = re.sub(r"(topic: )(sales)\b", rf"\1{first.name}.\2", path.read_text())
            text = re.sub(r"(?m)^(SOURCE|SOURCE, .*)( = .*)$", lambda m: named(m, first.name), text)
            path.write_text(re.sub(r"(?m)^name: .*$", f"name: {project.name}", text))
        made.append(project)
    return tuple(made)


def named(line: re.Match[str], name: str) -> str:
    return line[1] + line[2].replace('"sales', f'"{name}.sales')


def demo(project: Project) -> Demo:
    script = project.folder / "pipelines" / project.name / "demo.py"
    return Demo(script, project.broker.bootstrap)


def totals(numbers: Iterable[int]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return sales and cents of each shop and hour: each shop makes one sale a minute from 8:00."""
    sales, cents = Counter[tuple[str, int]](), defaultdict[tuple[str, int], int](int)
    for number in numbers:
        hour = ("north", "south")[number % 2], 8 + number // 2 // 60
        sales[hour] += 1
        cents[hour] += 100 + number * 37 % 9_900
    return {hour: (sales[hour], cents[hour]) for hour in sales}


def send(clean: Project, at: Iterable[str]) -> None:
    """Write a sale of the northern shop at each of these times, stamped by a till of its own."""
    source = f"{clean.name.removesuffix(NAMES[0])[:-1]}.sales"
    for time in at:
        sale = {"sale_id": 1000, "shop": "north", "cents": CENTS, "sold_at": f"{DAY}T{time}:00Z"}
        stamp = {PRODUCER: f"till-{time}", EPOCH: "0", SEQUENCE: "0"}
        fill(
            clean.broker.bootstrap,
            source,
            [{"value": json.dumps(sale), "headers": [*stamp.items()]}],
        )


def found(folder: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """Return what the table has, as `totals` has it."""
    rows = lake.rows(folder / "lake" / "sales_by_hour")
    made = {(row["shop"], row["hour"].hour): (row["sales"], row["cents"]) for row in rows}
    assert len(made) == len(rows)
    return made


def unlike_the_page(text: str) -> list[str]:
    """Return the lines of a demo's report that the page does not have."""
    page = (ROOT / "docs" / "combinations.md").read_text()
    return [line for line in text.splitlines() if line not in page]
