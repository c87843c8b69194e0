"""A parser for schemas in Spark's notation, such as `id BIGINT, lines ARRAY<STRUCT<sku: STRING>>`.

It needs no Spark, so that an invalid schema is reported before anything starts. Types that JSON
can't hold, such as an interval, are rejected. Spark reads the same text again at startup.
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

# fmt: off
_PLAIN = (
    "bigint", "binary", "boolean", "byte", "date", "double", "float", "int", "integer", "long",
    "real", "short", "smallint", "string", "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint",
    "variant",
)
_DECIMALS = ("decimal", "dec", "numeric")
# fmt: on
_NESTED = ("array", "map", "struct")
_WORD = re.compile(
    r"\s+|(`(?:[^`]|``)+`|[A-Za-z_]\w*|\d+|'(?:[^'\\]|\\.|'')*'|[<>(),:]|.)", re.DOTALL
)
_DEPTH_MAX = 20
_END = "the end"


class Column(NamedTuple):
    name: str
    is_required: bool  # NOT NULL
    kind: str = ""  # the first word of its type, in lower case


def checked(text: str) -> str:
    """Return the text if it is a schema. Otherwise raise ValueError."""
    columns(text)
    return text


def columns(text: str) -> tuple[Column, ...]:
    """Return the columns of a schema in Spark's notation.

    Raise ValueError with the expected and the actual word if the schema is invalid.
    """
    reader = _Reader([symbol for symbol in _WORD.findall(text) if symbol])
    found = reader.columns(_END, 0)
    names = [column.name.lower() for column in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"expected unique column names, ignoring case: `{twice[0]}` appears twice")
    return tuple(found)


class _Reader:
    def __init__(self, symbols: list[str]) -> None:
        self._symbols = [*symbols, _END]
        self._at = 0

    def columns(self, closing: str, depth: int) -> list[Column]:
        if depth > _DEPTH_MAX:
            raise ValueError(f"expected a schema with at most {_DEPTH_MAX} levels of nesting")
        found = []
        while True:
            name = self._name()
            if depth and self._next() == ":":  # in a STRUCT only
                self._take()
            kind = self._next().lower()
            self._type(name, depth)
            found.append(Column(name, self._is_required(name), kind))
            symbol = self._take()
            if symbol == closing:
                return found
            if symbol != ",":
                raise ValueError(
                    f"expected `,` or {_shown(closing)} after column `{name}`, got {_shown(symbol)}"
                )

    def _name(self) -> str:
        symbol = self._take()
        if symbol.startswith("`") and len(symbol) > 1:
            return symbol[1:-1].replace("``", "`")
        if symbol == _END or not re.fullmatch(r"[A-Za-z_]\w*", symbol):
            raise ValueError(
                f"expected a column name, got {_shown(symbol)}; put other names in backticks"
            )
        return symbol

    def _type(self, column: str, depth: int) -> None:
        symbol = self._take()
        kind = symbol.lower()
        if kind in _PLAIN:
            return
        if kind in _DECIMALS:
            self._precision(kind)
        elif kind in _NESTED:
            self._expect("<", f"after {kind.upper()}")
            if kind == "struct":
                self.columns(">", depth + 1)
                return
            if depth > _DEPTH_MAX:
                raise ValueError(f"expected a schema with at most {_DEPTH_MAX} levels of nesting")
            if kind == "map":
                self._type(column, depth + 1)
                self._expect(",", "between the key's and the value's type of a MAP")
            self._type(column, depth + 1)
            self._expect(">", f"at the end of {kind.upper()}")
        else:
            known = [*_PLAIN, *_DECIMALS, *_NESTED]
            close = difflib.get_close_matches(kind, known, n=1)
            did_you_mean = f"; did you mean `{close[0].upper()}`?" if close else ""
            raise ValueError(
                f"expected the type of column `{column}`, such as BIGINT, DOUBLE, STRING or "
                f"TIMESTAMP, got {_shown(symbol)}{did_you_mean}"
            )

    def _precision(self, kind: str) -> None:
        if self._next() != "(":
            return
        self._take()
        for number in range(2):
            symbol = self._take()
            if not symbol.isdigit():
                raise ValueError(f"expected a number in {kind.upper()}(...), got {_shown(symbol)}")
            if number or self._next() != ",":
                break
            self._take()
        self._expect(")", f"after the numbers of {kind.upper()}")

    def _is_required(self, column: str) -> bool:
        """Read the NOT NULL and the COMMENT after a column's type, both optional and in this order.

        Return whether NOT NULL was there.
        """
        is_required = self._next().lower() == "not"
        if is_required:
            self._take()
            symbol = self._take()
            if symbol.lower() != "null":
                raise ValueError(f"expected NOT NULL after column `{column}`, got NOT {symbol}")
        if self._next().lower() == "comment":
            self._take()
            symbol = self._take()
            if not symbol.startswith("'"):
                raise ValueError(f"expected a text in quotes after COMMENT, got {_shown(symbol)}")
        return is_required

    def _expect(self, expected: str, where: str) -> None:
        symbol = self._take()
        if symbol != expected:
            raise ValueError(f"expected `{expected}` {where}, got {_shown(symbol)}")

    def _next(self) -> str:
        return self._symbols[self._at]

    def _take(self) -> str:
        symbol = self._symbols[self._at]
        self._at = min(self._at + 1, len(self._symbols) - 1)
        return symbol


def _shown(symbol: str) -> str:
    return symbol if symbol == _END else f"`{symbol}`"
