"""Which pipelines does a Markdown document contain?"""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLOCK = re.compile(r"^```ya?ml\b[^\n]*\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
# A complete pipeline has these keys, even if one of the last two is misspelt. Parts of a pipeline
# and other YAML are skipped.
_FIRST = re.compile(r"^version:", re.MULTILINE)
_SIDE = re.compile(r"^(source|sink):", re.MULTILINE)


def pipelines(document: str) -> Iterator[str]:
    """Yield each pipeline, padded so that its line numbers are those of the document."""
    for block in _BLOCK.finditer(document):
        if _FIRST.search(block["text"]) and _SIDE.search(block["text"]):
            yield "\n" * document.count("\n", 0, block.start("text")) + block["text"]
