"""Figures are reported, not asserted: a table at the end, and JSON under .eos/bench/."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    value: str
    goal: str


class Figures:
    """What this run of the benchmarks found, and how busy the machine was."""

    def __init__(self) -> None:
        self.rows: list[Figure] = []
        self.raw: dict[str, Any] = {}
        self.load: list[float] = [os.getloadavg()[0]]

    def add(self, what: str, value: str, goal: str = "") -> None:
        self.rows.append(Figure(what, value, goal))
        self.load.append(os.getloadavg()[0])

    def keep(self, name: str, raw: object) -> None:
        """The single measurements behind the figures, for the JSON file."""
        self.raw[name] = raw

    @property
    def machine(self) -> str:
        loads = f"{min(self.load):.1f} to {max(self.load):.1f}"
        return f"{os.cpu_count()} cores, Python {platform.python_version()}, load {loads}"


_FIGURES = pytest.StashKey[Figures]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = Figures()


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    return pytestconfig.stash[_FIGURES]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    found = config.stash[_FIGURES]
    if not found.rows:
        return
    terminalreporter.section("figures")
    widths = [max(len(getattr(row, name)) for row in found.rows) for name in ("what", "value")]
    for row in found.rows:
        goal = f"  goal: {row.goal}" if row.goal else ""
        terminalreporter.line(f"{row.what:<{widths[0]}}  {row.value:>{widths[1]}}{goal}")
    path = CHECKOUT / ".eos" / "bench" / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": found.machine,
        "figures": [asdict(row) for row in found.rows],
        "measurements": found.raw,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    terminalreporter.line(f"{found.machine}; written to {path.relative_to(CHECKOUT)}")
