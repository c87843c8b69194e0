"""Peers are fetched only if somebody asks for them: `./tests/run bench -k peers`."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "peers" in config.getoption("keyword"):
        return
    ours = [item for item in items if item.path.parent == HERE]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]
