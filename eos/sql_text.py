"""What can be told of an SQL text without Spark: what it names, whether it only asks, and which of
its functions give another answer when they are asked again.

A scan of words, not a parser: Spark has the last word at the start. What it passes over is text in
quotes and comments, so that `'rand()'` is no function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d[\w.]*)
    |`(?P<quoted>(?:[^`]|``)+)`
    |(?P<word>[A-Za-z_]\w*)
    |(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
INPUT = "input"  # what a step calls the stage before it
_BEGINNINGS = {"select", "with", "from", "values", "table"}
# After WITH or FROM a statement may still write.
_WRITES = {"insert", "update", "delete", "merge"}

_AGAIN = "gives another value when a micro-batch is redone"
_CLOCK = "tells the time of the attempt, which is another when a micro-batch is redone"
_ORDER = "depends on the order of rows, which nothing fixes"
_PLACE = "depends on how rows are spread over tasks"
# fmt: off
UNSTABLE = {
    **dict.fromkeys(("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"), _AGAIN),
    **dict.fromkeys((
        "current_timestamp", "current_date", "current_time", "curdate", "now", "localtimestamp",
    ), _CLOCK),
    **dict.fromkeys(("first", "first_value", "any_value", "last", "last_value"), _ORDER),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id"), _PLACE),
}
# fmt: on
# They stand without brackets, too, where no column has their name.
_BARE = {"current_timestamp", "current_date", "current_time", "localtimestamp"}
_CALLED_WITHOUT = {"unix_timestamp": _CLOCK, "to_unix_timestamp": _CLOCK}  # arguments


class Token(NamedTuple):
    """A word in small letters, a name in backticks as it is, or a single other character."""

    text: str
    at: int
    is_quoted: bool = False


class Unstable(NamedTuple):
    function: str
    reason: str
    line: int
    column: int


def tokens(text: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "quoted":
            yield Token(match["quoted"].replace("``", "`").lower(), match.start(), is_quoted=True)
        elif match.lastgroup != "skipped":
            yield Token(match.group().lower(), match.start())


def not_a_query(text: str) -> str:
    """Why it can't be a step of a pipeline; empty if it can."""
    found = list(tokens(text))
    first = next((token.text for token in found if token.text != "("), "")
    if not first:
        return "expected a query, got nothing but comments" if text.strip() else "expected a query"
    if first not in _BEGINNINGS:
        return f"expected a query (SELECT, WITH, FROM ...), got a statement with `{first.upper()}`"
    for token, after in zip(found, [*found[1:], Token("", 0)], strict=True):
        if (
            not token.is_quoted
            and token.text in _WRITES
            and after.text in {"into", "overwrite", "from"}
        ):
            return f"expected a query that only reads, got one with `{token.text.upper()}`"
    if any(token.text == ";" for token in found[:-1]):
        return "expected one query, got several: each is a step of its own"
    return ""


def stripped(text: str) -> str:
    """Without the `;` at its end, which SQL tools ask for and Spark does not take here."""
    found = list(tokens(text))
    return text[: found[-1].at] if found and found[-1].text == ";" else text


def names(text: str) -> frozenset[str]:
    """All words and quoted names in it: what it may read is among them."""
    return frozenset(token.text for token in tokens(text))


def unstable(text: str) -> Iterator[Unstable]:
    """Functions whose answer a redone micro-batch would not repeat."""
    found = list(tokens(text))
    for number, token in enumerate(found):
        after = [each.text for each in found[number + 1 : number + 3]]
        is_member = number > 0 and found[number - 1].text == "."
        if token.is_quoted or is_member:
            continue
        reason = UNSTABLE.get(token.text, "")
        if token.text in _CALLED_WITHOUT and after == ["(", ")"]:
            reason = _CALLED_WITHOUT[token.text]
        elif after[:1] != ["("] and token.text not in _BARE:
            continue
        if reason:
            line = text.count("\n", 0, token.at) + 1
            column = token.at - (text.rfind("\n", 0, token.at) + 1) + 1
            yield Unstable(token.text, reason, line, column)
