"""What the documents say is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
STOPS = {name: text for name, text in PAGES.items() if name.startswith("stops-")}
RUNBOOK = PAGES["recovery.md"]
CASE = re.compile(r"^### `([a-z_]+)`$", re.MULTILINE)
LINK = re.compile(r"\]\(([\w-]+\.md)?#([\w-]+)\)")


def test_every_stop_has_one_section_and_no_section_is_about_nothing() -> None:
    raised = {
        case
        for path in (ROOT / "eos").rglob("*.py")
        for case in re.findall(r'case="([a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    described = [case for text in STOPS.values() for case in CASE.findall(text)]
    assert sorted(described) == sorted(raised)


def test_the_runbook_links_every_stop() -> None:
    sections = {(name, case) for name, text in STOPS.items() for case in CASE.findall(text)}
    assert sections <= set(LINK.findall(RUNBOOK))
