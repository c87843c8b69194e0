"""The Spark column of each field of a Protobuf message: its type, and its range of values.

Types are those of Spark's own `from_protobuf`, except that unsigned integers get a type that holds
all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor as Of

_FIELDS_MAX = 10_000  # of a message and all nested messages
# fmt: off
_INT32 = (Of.TYPE_INT32, Of.TYPE_SINT32, Of.TYPE_SFIXED32)
_INT64 = (Of.TYPE_INT64, Of.TYPE_SINT64, Of.TYPE_SFIXED64)
_WELL_KNOWN = {"google.protobuf.Timestamp": "TIMESTAMP",
               "google.protobuf.Duration": "INTERVAL DAY TO SECOND"}
_SQL = {
    **dict.fromkeys(_INT32, "INT"), **dict.fromkeys(_INT64, "BIGINT"),
    Of.TYPE_UINT32: "BIGINT", Of.TYPE_FIXED32: "BIGINT",
    Of.TYPE_UINT64: "DECIMAL(20,0)", Of.TYPE_FIXED64: "DECIMAL(20,0)",
    Of.TYPE_FLOAT: "FLOAT", Of.TYPE_DOUBLE: "DOUBLE", Of.TYPE_BOOL: "BOOLEAN",
    Of.TYPE_STRING: "STRING", Of.TYPE_BYTES: "BINARY", Of.TYPE_ENUM: "STRING",
}
_BOUNDS = {
    **dict.fromkeys(_INT32, (-(1 << 31), (1 << 31) - 1)),
    **dict.fromkeys(_INT64, (-(1 << 63), (1 << 63) - 1)),
    **dict.fromkeys((Of.TYPE_UINT32, Of.TYPE_FIXED32), (0, (1 << 32) - 1)),
    **dict.fromkeys((Of.TYPE_UINT64, Of.TYPE_FIXED64), (0, (1 << 64) - 1)),
}
# fmt: on


class Label(Enum):
    ONE = 1
    LIST = 2
    MAP = 3


@dataclass(frozen=True)
class Field:
    """A Protobuf field as a Spark column.

    `sql` is the type of one value, list element or map value. `key` describes the keys of a map."""

    name: str
    label: Label
    sql: str
    descriptor: Any  # of the value for a map
    fields: Fields = ()  # of a message
    key: Field | None = None

    @property
    def sql_type(self) -> str:
        one = f"STRUCT<{ddl(self.fields, ': ')}>" if self.fields else self.sql
        if self.key is not None:
            return f"MAP<{self.key.sql}, {one}>"
        return f"ARRAY<{one}>" if self.label is Label.LIST else one

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Return the smallest and the largest valid integer; None if the type is no integer."""
        return _BOUNDS.get(self.descriptor.type)

    @property
    def choice(self) -> str:
        """Return the name of the `oneof` that has the field; empty if there is none.

        protoc makes a `oneof` for each `optional` field of proto3. It has no other field.
        """
        of = self.descriptor.containing_oneof
        return of.name if of is not None else ""

    @property
    def is_nullable(self) -> bool:
        """Return whether an absent field gives null, and not the default value, in the column."""
        has_default = self.descriptor.has_default_value and not self.choice
        return bool(self.descriptor.has_presence) and not has_default

    @property
    def is_enum(self) -> bool:
        return bool(self.descriptor.type == Of.TYPE_ENUM)

    @cached_property
    def enum_names(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for each in self.descriptor.enum_type.values:
            found.setdefault(each.number, each.name)  # with aliases, the first name
        return found

    @property
    def enum_stranger(self) -> str:
        """Return the prefix of the text for an enum number without a name, the same as Spark's."""
        return f"UNKNOWN_ENUM_VALUE_{self.descriptor.enum_type.name}_"


Fields: TypeAlias = tuple[Field, ...]


def ddl(fields: Fields, between: str = " ") -> str:
    return ", ".join(f"`{each.name}`{between}{each.sql_type}" for each in fields)


def fields_of(message: Any) -> Fields:
    """Return the fields of a message descriptor as columns.

    Raise ValueError if Spark has no columns for the message."""
    found = _fields(message, (message.full_name,), [0])
    if not found:
        raise ValueError(f"expected a message with fields: `{message.full_name}` has none")
    return found


def _fields(message: Any, path: tuple[str, ...], counted: list[int]) -> Fields:
    found: dict[str, Field] = {}
    for each in message.fields:
        counted[0] += 1
        if counted[0] > _FIELDS_MAX:
            raise ValueError(f"expected at most {_FIELDS_MAX} fields, including nested ones")
        field = _field(each, path, counted)
        if field is None:
            continue
        if field.name.lower() in found:
            raise ValueError(
                f"expected field names of `{message.full_name}` that differ in more than upper and "
                f"lower case: `{field.name}` occurs twice"
            )
        found[field.name.lower()] = field
    return tuple(found.values())


def _field(each: Any, path: tuple[str, ...], counted: list[int]) -> Field | None:
    """Return a field descriptor as a column; None if its type is a message without fields.

    Spark has no type for a struct without fields."""
    kind = each.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = (kind.fields_by_name[name] for name in ("key", "value"))
        inner = _field(value, path, counted)
        if inner is None:
            return None
        named = Field("key", Label.ONE, _SQL[key.type], key)
        return Field(each.name, Label.MAP, inner.sql, value, inner.fields, named)
    label = Label.LIST if each.is_repeated else Label.ONE
    if kind is None:
        return Field(each.name, label, _SQL[each.type], each)
    if kind.full_name in _WELL_KNOWN:
        return Field(each.name, label, _WELL_KNOWN[kind.full_name], each)
    if kind.full_name in path:
        raise ValueError(
            f"expected a message that does not contain itself: `{kind.full_name}` does, in "
            f"`{each.full_name}`, and Spark has no type for that"
        )
    fields = _fields(kind, (*path, kind.full_name), counted)
    return Field(each.name, label, "STRUCT", each, fields) if fields else None
