"""Logins by Kerberos at a real broker, with a real KDC.

A machine without a KDC has one line about it, and no failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kdc import missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not missing():
        return
    ours = [item for item in items if HERE in Path(item.path).parents]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if missing():
        terminalreporter.line(
            f"LEFT OUT: the tests with Kerberos: {', '.join(missing())} not here; "
            "tests/kerberos/install.sh"
        )
