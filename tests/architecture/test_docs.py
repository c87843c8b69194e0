"""What the documents say is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECOVERY = (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8")


def test_every_stop_has_its_paragraph_and_no_paragraph_is_about_nothing() -> None:
    raised = {
        case
        for path in (ROOT / "eos").rglob("*.py")
        for case in re.findall(r'case="([a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    told = set(re.findall(r"^### `([a-z_]+)`$", RECOVERY, re.MULTILINE))
    assert told == raised
