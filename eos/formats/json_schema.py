"""JSON schemas by which the tasks that read Kafka can parse keys and values, and the columns that
these tasks add to the records (`json_columns.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

# Spark's types that the native library parses, in the order of `json.c`.
_KINDS = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string"),
    *("date", "timestamp"),
)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SCALE_MAX = 18


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of the JSON objects, with its Spark type."""

    name: str
    kind: str
    is_required: bool = False  # NOT NULL: records without it are left for Spark, which rejects them

    @property
    def number(self) -> int:
        """Return the type's number in `json.c`."""
        return _KINDS.index(self.kind.partition("(")[0])

    @property
    def digits(self) -> tuple[int, int]:
        """Return precision and scale of a decimal; zeros for other types."""
        found = _DECIMAL.fullmatch(self.kind)
        return (int(found[1]), int(found[2])) if found else (0, 0)


def left_of(source: str) -> str:
    """Return the name of the column with the bytes that Spark has to parse; all others are null."""
    return f"__eos_{source}_left"


def parsed_of(source: str, number: int) -> str:
    """Return the name of the column with the values of the schema's field `number`."""
    return f"__eos_{source}_{number}"


def json_fields(
    fields: Iterable[StructField], required: Iterable[str], *, has_old_times: bool
) -> tuple[JsonField, ...] | str:
    """Return the fields of a schema, or why only Spark can parse JSON by this schema.

    `has_old_times` is true if Spark parses dates and times by the rules of its version 2.
    """
    found: dict[str, JsonField] = {}
    for each in fields:
        kind = each.dataType.simpleString()
        is_known = kind in _KINDS and kind != "decimal"
        decimal = _DECIMAL.fullmatch(kind)
        is_known = is_known or (decimal is not None and int(decimal[2]) <= _SCALE_MAX)
        if not is_known or (has_old_times and kind in ("date", "timestamp")):
            return f"the column `{each.name}` is of type {kind}"
        if set(each.metadata or ()) - {"comment"}:
            return f"the column `{each.name}` has a default or a length"
        if each.name in found:
            return f"the column `{each.name}` is in the schema twice"
        found[each.name] = JsonField(each.name, kind, each.name in set(required))
    return tuple(found.values()) or "the schema has no columns"
