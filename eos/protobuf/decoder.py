"""Records as columns. A record that can't be read, or is too large as columns, is a null.

Each message is parsed by the library's own parser, in C; taking its fields out is Python.
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

Take: TypeAlias = Callable[[Any], Any]
_MICROS_MAX = (1 << 63) - 1


class _UnreadableError(Exception):
    """Its bytes are such a message, and a field holds what no column can."""


def read(message: Message, column: Any) -> Any:
    """Return the messages of an array of bytes as a struct array. Raises `TooLargeError`."""
    kind, take, is_small = message.type, _message(message.fields), partial(fits, message)
    return records(message.fields, [_row(kind, take, is_small, raw) for raw in column.to_pylist()])


def _row(kind: Any, take: Take, is_small: Callable[[bytes], bool], raw: bytes | None) -> Any:
    if raw is None or not is_small(raw):
        return None
    try:
        made = kind.FromString(raw)
        if not kind.IsInitialized(made):  # a field is required, and not there
            return None
        return take(made)
    except (DecodeError, UnicodeDecodeError, _UnreadableError):  # the second: where it is no C
        return None


def _message(fields: Fields) -> Take:
    takes = [_field(each) for each in fields]
    return lambda message: [take(message) for take in takes]


def _field(field: Field) -> Take:
    name, get, value = field.name, attrgetter(field.name), _value(field)
    if field.key is not None:
        # Sorted: in memory they have no order, and what is redone shall give the same.
        of_key = _value(field.key)

        def entries(message: Any) -> list[Any]:
            found = get(message)
            return sorted([(of_key(key), value(found[key])) for key in found], key=itemgetter(0))

        return entries
    if field.label is Label.LIST:
        return lambda message: [value(each) for each in get(message)]
    if field.is_nullable:
        # Asked of the type: a field may be called so.
        return lambda m: value(get(m)) if type(m).HasField(m, name) else None
    return lambda message: value(get(message))


def _value(field: Field) -> Take:
    """What an array of the field's type is made of (`arrays.py`)."""
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
    if not isinstance(value, str):  # of proto2: the parser lets pass what is no UTF-8, as bytes
        raise _UnreadableError("a text that is no UTF-8")
    return value.encode()


def _micros(time: Any) -> int:
    """As Spark: what is less than a microsecond is cut off."""
    nanos = time.nanos
    micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
    found: int = time.seconds * 1_000_000 + micros
    if not -_MICROS_MAX <= found <= _MICROS_MAX:
        raise _UnreadableError("a time that Spark has no number for")
    return found
