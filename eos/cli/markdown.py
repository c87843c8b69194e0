"""The pipelines that a Markdown document shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLOCK = re.compile(r"^```ya?ml\b[^\n]*\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
# A whole pipeline has them, even if one of the last two is misspelt. A part of a pipeline is not
# looked at, and neither is YAML of somebody else.
_FIRST = re.compile(r"^version:", re.MULTILINE)
_SIDE = re.compile(r"^(source|sink):", re.MULTILINE)


def pipelines(document: str) -> Iterator[str]:
    """Each in the lines that it has in the document: what is told of it has its place there."""
    for block in _BLOCK.finditer(document):
        if _FIRST.search(block["text"]) and _SIDE.search(block["text"]):
            yield "\n" * document.count("\n", 0, block.start("text")) + block["text"]
