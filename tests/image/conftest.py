"""The image of conf/deploy. A machine without containers has one line about it, and no failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.machines.image import Engine

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in Path(item.path).parents]
    if not ours or Engine.found():
        return
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if Engine.found() is None:
        terminalreporter.line(
            "LEFT OUT: the tests of the image: this machine runs no containers; "
            "tests/container/install.sh"
        )
