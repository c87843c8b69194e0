"""Decode Protobuf records into columns. A malformed or too large record becomes null.

The Protobuf library's C code parses each message. Python only reads its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from eos.protobuf.arrays import records
from eos.protobuf.fields import Field, Fields, Label
from eos.protobuf.limits import fits
from eos.protobuf.message import Message

Reader: TypeAlias = Callable[[Any], Any]
_MICROS_MAX = (1 << 63) - 1


class _UnreadableError(Exception):
    """The bytes are a valid message, but a column can't hold one of its values."""


def read(message: Message, column: Any) -> Any:
    """Decode an array of encoded messages into a struct array; null for a malformed message.

    Raise TooLargeError if a column exceeds the limits of one Arrow batch."""
    kind, reader, is_small = message.type, _message(message.fields), partial(fits, message)
    return records(
        message.fields, [_row(kind, reader, is_small, raw) for raw in column.to_pylist()]
    )


def _row(kind: Any, reader: Reader, is_small: Callable[[bytes], bool], raw: bytes | None) -> Any:
    if raw is None or not is_small(raw):
        return None
    try:
        result = kind.FromString(raw)
        if not kind.IsInitialized(result):  # a required field is missing
            return None
        return reader(result)
    # The library raises UnicodeDecodeError where its C code is missing.
    except (DecodeError, UnicodeDecodeError, _UnreadableError):
        return None


def _message(fields: Fields) -> Reader:
    readers = [_field(each) for each in fields]
    return lambda message: [reader(message) for reader in readers]


def _field(field: Field) -> Reader:
    name, get, value = field.name, attrgetter(field.name), _value(field)
    if field.key is not None:
        # Protobuf maps have no order. Sort them, so that a retried attempt gives the same rows.
        of_key = _value(field.key)

        def entries(message: Any) -> list[Any]:
            found = get(message)
            return sorted([(of_key(key), value(found[key])) for key in found], key=itemgetter(0))

        return entries
    if field.label is Label.LIST:
        return lambda message: [value(each) for each in get(message)]
    if field.is_nullable:
        # Call HasField on the class: on a message, a field with this name would hide the method.
        return lambda m: value(get(m)) if type(m).HasField(m, name) else None
    return lambda message: value(get(message))


def _value(field: Field) -> Reader:
    """Return a function that converts one value of a field for its Arrow array (`arrays.py`)."""
    if field.fields:
        return _message(field.fields)
    if field.is_enum:
        names = {number: name.encode() for number, name in field.enum_names.items()}
        before = field.enum_stranger
        return lambda number: names.get(number) or f"{before}{number}".encode()
    if field.sql == "STRING":
        return _text
    if field.sql in ("TIMESTAMP", "INTERVAL DAY TO SECOND"):
        return _micros
    return lambda value: value


def _text(value: Any) -> bytes:
    if not isinstance(value, str):  # proto2: invalid UTF-8 is returned as bytes
        raise _UnreadableError("text that is not UTF-8")
    return value.encode()


def _micros(time: Any) -> int:
    """Return a Timestamp or Duration in microseconds, truncated towards zero as in Spark."""
    nanos = time.nanos
    micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
    found: int = time.seconds * 1_000_000 + micros
    if not -_MICROS_MAX <= found <= _MICROS_MAX:
        raise _UnreadableError("a time outside Spark's range")
    return found
