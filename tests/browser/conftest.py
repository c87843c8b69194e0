"""Pages in a real browser. A machine without one has one line about it, and no failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.report_page import Chromium, browser, find

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if find() is not None:
        return
    ours = [item for item in items if HERE in Path(item.path).parents]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if find() is None:
        terminalreporter.line(
            "LEFT OUT: the tests in a browser: no chromium here; tests/browser/install.sh"
        )


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made
