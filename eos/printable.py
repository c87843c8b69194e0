"""Text from outside for people: no character of it acts on a terminal or forges a line.

Values of records, names of topics and words of brokers end up in messages. An escape sequence in
one of them could clear the screen, rewrite what was said, or look like a line of ours.
"""

from __future__ import annotations

import re

# Controls but the line's end, what ends a line elsewhere, what turns the direction of writing
# around, and halves of characters, which no encoding writes.
_ACTS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """Return the text with such characters escaped, and its lines as they are."""
    return _ACTS.sub(_escaped, text)


def printable(text: str) -> str:
    """Return a message for people: escaped, and each line after the first is indented, so that
    none passes for another message."""
    first, *more = escaped(text).split("\n")
    lines = (line if line[:1] in ("", " ") else f"  {line}" for line in more)
    return "\n".join([first, *lines])


def one_line(text: str) -> str:
    """Return the text on one line: the ends of its lines are escaped, too."""
    return escaped(text).replace("\n", "\\n")


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
