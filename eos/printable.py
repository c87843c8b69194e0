"""Make external text safe to print: it must not control a terminal or imitate lines of this
project.

Values of records, names of topics and errors of brokers get into messages. An escape sequence in
them could clear the screen, rewrite earlier output, or look like one of the project's lines.
"""

from __future__ import annotations

import re

# Control characters except the line feed, other line separators, marks that change the writing
# direction, and surrogate halves, which no encoding writes.
_ACTS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """Return the text with control characters and similar ones escaped. Line feeds are kept."""
    return _ACTS.sub(_escaped, text)


def printable(text: str) -> str:
    """Return a message with control characters escaped. Each line after the first is indented, so
    that none looks like another message."""
    first, *more = escaped(text).split("\n")
    lines = (line if line[:1] in ("", " ") else f"  {line}" for line in more)
    return "\n".join([first, *lines])


def one_line(text: str) -> str:
    """Return the text on one line, with line feeds escaped too."""
    return escaped(text).replace("\n", "\\n")


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
