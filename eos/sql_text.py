"""Find out what an SQL text reads, and whether a retry gives the same result, without Spark.

This scans words and is no parser: Spark validates the query at startup. The scan skips comments and
text in quotes, so `'rand()'` is not a function.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|--[^\n]*|/\*.*?(?:\*/|\Z)|[rR]'[^']*'|[rR]"[^"]*"
        |'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\d[\w.]*)
    |`(?P<quoted>(?:[^`]|``)+)`
    |(?P<word>[A-Za-z_]\w*)
    |(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
INPUT = "input"  # the name of a step's input
_BEGINNINGS = {"select", "with", "from", "values", "table"}
# A statement that begins with WITH or FROM may still write: the words that do, and what follows.
_WRITES = {"insert": ("into", "overwrite", "with"), "merge": ("into", "with"), "delete": ("from",)}

# fmt: off
_KEYWORDS = frozenset({
    "all", "and", "any", "as", "between", "case", "cast", "date", "day", "distinct", "div", "else",
    "end", "escape", "exists", "false", "from", "hour", "ilike", "in", "interval", "is", "like",
    "minute", "month", "not", "null", "or", "regexp", "rlike", "second", "some", "then", "time",
    "timestamp", "true", "week", "when", "year",
})
# fmt: on
_OPERATORS = frozenset("<>=!+-*/%&|^~,")
_BINARY_WORDS = {"and", "or", "not", "like", "ilike", "rlike", "between", "where", "from", "join"}
_NOTHING = re.compile(r"\s+|--[^\n]*|/\*.*?(?:\*/|\Z)|;", re.DOTALL)
# keywords that may follow FROM
_SOURCES = {"values", "lateral", "table", "stream", "select", "identifier"}

AGAIN = "returns another value when a micro-batch is retried"
CLOCK = "returns the time of the attempt, so a retry of the micro-batch returns another value"
_ORDER = "depends on the order of rows, which is not fixed"
_PLACE = "depends on how rows are distributed over tasks"
# fmt: off
UNSTABLE = {
    **dict.fromkeys(("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"), AGAIN),
    **dict.fromkeys((
        "current_timestamp", "current_date", "current_time", "curdate", "now", "localtimestamp",
    ), CLOCK),
    **dict.fromkeys(("first", "first_value", "any_value", "last", "last_value"), _ORDER),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id"), _PLACE),
}
# These functions can be called without brackets, unless a column has the same name.
_BARE = {"current_timestamp", "current_date", "current_time", "localtimestamp"}
# unstable only without arguments
_CALLED_WITHOUT = {"unix_timestamp": CLOCK, "to_unix_timestamp": CLOCK}


class Token(NamedTuple):
    """A word in lower case, a quoted name in lower case, or a single other character."""

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
    """Return why the text can't be a transform step of a pipeline; "" if it can be."""
    found = list(tokens(text))
    first, write = _first_word(found), _write_in(found)
    if not first:
        return "expected a query, got only comments" if text.strip() else "expected a query"
    if first not in _BEGINNINGS:
        return f"expected a query (SELECT, WITH, FROM ...), got a statement with `{first.upper()}`"
    if write:
        return f"expected a query that only reads, got one with `{write.upper()}`"
    if any(token.text == ";" for token in found[:-1]):
        return "expected one query, got several: write a step for each"
    return _sorts(text, found) or _unfinished(text, found, "a query")


def is_query(text: str) -> bool:
    """Return whether the text is a query that only reads. Spark runs other statements at once."""
    found = list(tokens(text))
    return _first_word(found) in _BEGINNINGS and not _write_in(found)


def _first_word(found: list[Token]) -> str:
    return next((token.text for token in found if token.text != "("), "")


def _write_in(found: list[Token]) -> str:
    """Return the word by which a text writes, although it begins like a query; "" if it only reads.

    INSERT follows WITH or FROM somewhere. The other words follow the last bracket of WITH, and may
    be names of columns elsewhere.
    """
    for number, token in enumerate(found[:-1]):
        is_place = token.text == "insert" or (number > 0 and found[number - 1].text == ")")
        if token.is_quoted or not is_place:
            continue
        if found[number + 1].text in _WRITES.get(token.text, ()):
            return token.text
        if token.text == "update" and _is_set([each.text for each in found[number + 1 :]]):
            return token.text
    return ""


def _is_set(words: list[str]) -> bool:
    """Return whether the words after UPDATE are a table's name, perhaps an alias, and SET."""
    at = 1
    while words[at : at + 1] == ["."]:
        at += 2
    return "set" in [word for word in words[at : at + 3] if word != "as"][:2]


def not_a_condition(text: str) -> str:
    """Return why the text can't be a condition on one row; "" if this scan finds no reason."""
    found = list(tokens(text))
    if not found:
        return "expected an SQL condition, such as `amount > 0`"
    if any(token.text == ";" for token in found):
        return "expected one SQL condition without `;`"
    if not found[0].is_quoted and found[0].text in {"where", "select"}:
        return f"expected an SQL condition without `{found[0].text.upper()}`, such as `amount > 0`"
    return _unfinished(text, found, "an SQL condition")


def _unfinished(text: str, found: list[Token], subject: str) -> str:
    """Return what is missing in the text: the other bracket or quote of a pair, or the operand
    after an operator. "" if nothing is."""
    opened: list[str] = []
    for token in found:
        if token.is_quoted:
            continue
        if token.text in "([":
            opened.append(")" if token.text == "(" else "]")
        elif token.text in ")]" and (not opened or opened.pop() != token.text):
            return f"expected an opening bracket before `{token.text}` in {subject}"
        elif token.text in {"'", '"', "`"}:  # the scan has skipped complete quotes
            return f"expected a closing `{token.text}` in {subject}"
    if opened:
        return f"expected `{opened[-1]}` in {subject}, got its end"
    last = found[-2] if found[-1].text == ";" and len(found) > 1 else found[-1]
    is_end = last.text == "*" and subject == "a query"  # `FROM input SELECT *` is complete
    is_end |= last.text == ">" and any(each.text in {"array", "map", "struct"} for each in found)
    is_open = (last.text in _OPERATORS or last.text in _BINARY_WORDS) and not is_end
    is_open = is_open and not last.is_quoted
    if is_open and not _NOTHING.sub("", text[last.at + len(last.text) :]):
        return f"expected an operand after `{last.text}` in {subject}, got its end"
    return ""


def _sorts(text: str, found: list[Token]) -> str:
    """Return why the query can't run on a stream: it orders or limits all rows, but a stream has no
    last row. "" if it does neither."""
    depth = 0
    for number, token in enumerate(found):
        depth += {"(": 1, ")": -1}.get(token.text, 0) if not token.is_quoted else 0
        if depth or token.is_quoted:
            continue
        after = found[number + 1].text if number + 1 < len(found) else ""
        if token.text == "order" and after == "by":
            return "expected no ORDER BY at a step's end, whose rows are a stream: remove ORDER BY"
        before = found[number - 1].text if number else ""
        is_cut = re.match(r"limit\s+\d+\s*(;|\Z|offset\b)", text[token.at :], re.IGNORECASE)
        if token.text == "limit" and is_cut and before not in {",", ".", "as", "select"}:
            return "expected no LIMIT at a step's end, whose rows are a stream: remove LIMIT"
    return ""


def unknown_tables(text: str, known: Iterable[str]) -> Iterator[str]:
    """Yield table names after FROM and JOIN that are neither `known` nor defined by the query.

    Names that may be no table are skipped: `a.b`, a name before brackets, and the name in
    `extract(day FROM t)`, whose brackets contain no SELECT.
    """
    found = list(tokens(text))
    words = ["" if token.is_quoted else token.text for token in found]
    passed = {name.lower() for name in known} | _common(found)
    selects = [words[:1] == ["from"]]  # per bracket level: whether a table follows FROM
    for number, word in enumerate(words[:-1]):
        before = words[number - 1] if number else ""
        if word == "(":
            selects.append(False)
        elif word == ")" and len(selects) > 1:
            selects.pop()
        selects[-1] |= word == "select"
        is_read = word in {"from", "join"} and selects[-1] and before not in {".", "distinct"}
        if not is_read or words[number + 2 : number + 3] in (["."], ["("]):
            continue
        name = found[number + 1]
        is_name = name.is_quoted or (name.text.isidentifier() and name.text not in _SOURCES)
        if is_name and name.text not in passed:
            yield name.text


def _common(found: list[Token]) -> set[str]:
    """Return the names that WITH defines: `name AS (`, or `name (columns) AS (`."""
    names: set[str] = set()
    for number, token in enumerate(found):
        if token.text == "as" and [each.text for each in found[number + 1 : number + 2]] == ["("]:
            at = number - 1
            if at > 0 and found[at].text == ")":
                while at > 0 and found[at].text != "(":
                    at -= 1
                at -= 1
            names.add(found[at].text)
    return names


def misspelt(text: str, columns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each unknown word that resembles a column and is where a column could be, with that
    column.

    Other unknown words are left to Spark: a keyword, a type, or a name in a lambda.
    """
    known = {name.lower(): name for name in columns}
    found = list(tokens(text))
    texts = [token.text for token in found]
    lambdas = {texts[at] for at in range(len(texts)) if texts[at + 1 : at + 3] == ["-", ">"]}
    for number, token in enumerate(found):
        before = found[number - 1].text if number else ""
        after = found[number + 1].text if number + 1 < len(found) else ""
        is_name = token.is_quoted or token.text[0].isalpha() or token.text[0] == "_"
        if not is_name or before in {".", "as"} or after == "(" or token.text in lambdas:
            continue
        if token.text in known or (token.text in _KEYWORDS and not token.is_quoted):
            continue
        close = difflib.get_close_matches(token.text, known, n=1, cutoff=0.75)
        if close:
            yield token.text, known[close[0]]


def stripped(text: str) -> str:
    """Return the text without a `;` at its end. SQL tools expect it there, but Spark rejects it in
    a step."""
    found = list(tokens(text))
    return text[: found[-1].at] if found and found[-1].text == ";" else text


def names(text: str) -> frozenset[str]:
    """Return all words and quoted names in the text, in lower case. They include every table and
    column that it may read."""
    return frozenset(token.text for token in tokens(text))


def unstable(text: str, columns: Collection[str] | None = ()) -> Iterator[Unstable]:
    """Yield each function call whose result may differ when a micro-batch is retried, with its
    place.

    A column hides a function without brackets of the same name. So pass the columns; with None,
    such names are not reported.
    """
    known = _BARE if columns is None else {name.lower() for name in columns}
    found = list(tokens(text))
    for number, token in enumerate(found):
        after = [each.text for each in found[number + 1 : number + 3]]
        is_member = number > 0 and found[number - 1].text == "."
        if token.is_quoted or is_member:
            continue
        reason = UNSTABLE.get(token.text, "")
        if token.text in _CALLED_WITHOUT and after == ["(", ")"]:
            reason = _CALLED_WITHOUT[token.text]
        elif after[:1] != ["("] and (token.text not in _BARE or token.text in known):
            continue
        if reason:
            line = text.count("\n", 0, token.at) + 1
            column = token.at - (text.rfind("\n", 0, token.at) + 1) + 1
            yield Unstable(token.text, reason, line, column)
