"""Leave out a folder of tests whose programs this machine lacks, with one line about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Select = Callable[[pytest.Config, list[pytest.Item]], None]
Summary = Callable[[pytest.TerminalReporter], None]


def left_out(
    conftest: str, what: str, missing: Callable[[], Sequence[str]]
) -> tuple[Select, Summary]:
    """Return the hooks `pytest_collection_modifyitems` and `pytest_terminal_summary` for the folder
    of `conftest`. Its `install.sh` installs what `missing` returns."""
    folder = Path(conftest).parent

    def select(config: pytest.Config, items: list[pytest.Item]) -> None:
        if missing():
            ours = [item for item in items if folder in Path(item.path).parents]
            config.hook.pytest_deselected(items=ours)
            items[:] = [item for item in items if item not in ours]

    def summary(terminalreporter: pytest.TerminalReporter) -> None:
        if missing():
            terminalreporter.line(
                f"LEFT OUT: the tests with {what}: {', '.join(missing())} not here; "
                f"tests/{folder.name}/install.sh"
            )

    return select, summary
