"""The blocks of code in the documents, for those who check them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LANGUAGES = {"", "yaml", "python", "bash", "mermaid"}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Of all documents: a name, DOCUMENT-NUMBER, and the text."""
    for path in DOCUMENTS:
        found = re.finditer(r"^```(\w*)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
        for number, block in enumerate(found, 1):
            assert block[1] in LANGUAGES, f"{path}: nobody checks {block[1]}"
            if block[1] == language:
                yield f"{path.name}-{number}", block[2]
