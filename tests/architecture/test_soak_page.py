"""docs/soak.md is what the reports in tests/soak/reports say."""

from __future__ import annotations

from pathlib import Path

from soak.page import page

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    command = "PYTHONPATH=tests .venv/bin/python -m soak.page > docs/soak.md"
    assert (ROOT / "docs/soak.md").read_text(encoding="utf-8") == page(), command
