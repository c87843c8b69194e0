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


_COLUMNS_OF_OTHERS_MAX = 3


def _tables() -> Iterator[list[str]]:
    """Yield the cells of each line of a table in docs/combinations.md."""
    for line in (ROOT / "docs" / "combinations.md").read_text().splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def matrix() -> dict[tuple[str, str], str]:
    """Return the cell of each pair of features, by their letters: `+`, or a refusal's number."""
    found = {}
    for line in _tables():
        letter = re.match(r"([A-Z]) ", line[0])
        if letter is not None and len(line) > _COLUMNS_OF_OTHERS_MAX:
            found |= {(letter[1], chr(ord("A") + at)): cell for at, cell in enumerate(line[1:])}
    return found


def refusals() -> dict[str, str]:
    """Return the quoted words of each refusal on that page, by its number."""
    return {line[0]: line[1].strip('"') for line in _tables() if line[0].isdigit()}
