"""Reject Protobuf records that would take too much memory as columns.

Two bytes can encode a nested message, for which the parser and the columns allocate all fields. The
check runs before the parser, on the wire format alone. It depends only on the record, so a retried
attempt gives the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor as Of

from eos.protobuf.message import Message

# A record's estimated size as columns may be at most BYTES_MAX, or FACTOR_MAX times its encoded
# size if that is more. A 4 MiB Arrow batch of records of 64 KiB or more then takes at most 256 MiB.
# Many small records with many empty messages can take more: 4 MiB times the highest cost of a byte.
BYTES_MAX = 4 << 20
FACTOR_MAX = 64
# Measured sizes: a message with its row; a null or a number with its places in row, column and
# array; the Python object of a text or a 64-bit value.
_MESSAGE_BYTES, _CELL_BYTES, _OBJECT_BYTES = 200, 32, 96
_DEPTH_MAX = 100  # the parser's own limit
_VARINT_BYTES_MAX = 10
_FIXED64 = (Of.TYPE_FIXED64, Of.TYPE_SFIXED64, Of.TYPE_DOUBLE)
_FIXED32 = (Of.TYPE_FIXED32, Of.TYPE_SFIXED32, Of.TYPE_FLOAT)
_TEXTS = (Of.TYPE_STRING, Of.TYPE_BYTES)
_NO_TEXTS = (*_FIXED32, Of.TYPE_BOOL, Of.TYPE_INT32, Of.TYPE_SINT32, Of.TYPE_UINT32)
_VARINT, _BITS64, _BYTES, _GROUP, _GROUP_END, _BITS32 = range(6)


class _BrokenError(Exception):
    """The bytes are no message."""


@dataclass(slots=True)
class _Shape:
    """What the scan of a record needs to know of a field.

    `cost` is the estimated memory of one value in bytes. `least` is the minimum encoded size of a
    packed value, 0 if it can't be packed. `inner` has the fields of a nested message.
    """

    cost: int
    least: int = 0
    inner: Mapping[int, _Shape] | None = field(default=None, repr=False)


_Known: TypeAlias = dict[str, dict[int, _Shape]]  # by a message's full name


def fits(message: Message, raw: bytes) -> bool:
    """Return whether the estimated memory of a record as columns stays within its limit.

    Most records are too short to exceed the limit, and are not scanned. Scanned bytes that are no
    message return False, too.
    """
    shapes, cost_per_byte = _shapes(message)
    limit = max(BYTES_MAX, FACTOR_MAX * len(raw))
    if len(raw) * cost_per_byte <= limit:
        return True
    try:
        return _cost(raw, shapes, limit) <= limit
    except _BrokenError:
        return False


def _cost(raw: bytes, shapes: Mapping[int, _Shape], limit: int) -> int:
    """Return the estimated memory of an encoded message as columns; stop once it exceeds `limit`.

    Raise _BrokenError if the bytes are no message."""
    cost, at, end = len(raw), 0, len(raw)
    above: list[tuple[int, Mapping[int, _Shape], int]] = []  # end, fields, number of the group
    while cost <= limit:
        while at == end and above and not above[-1][2]:
            end, shapes, _ = above.pop()
        if at == end:
            break
        tag, at = _varint(raw, at, end)
        number, kind = tag >> 3, tag & 7
        shape = shapes.get(number)
        if kind in (_BYTES, _GROUP):
            size = end - at
            if kind == _BYTES:
                size, at = _varint(raw, at, end)
            if size > end - at:
                raise _BrokenError
            if shape is not None:
                cost += shape.cost * (max(1, size // shape.least) if shape.least else 1)
            if kind == _GROUP or (shape is not None and shape.inner is not None):
                if len(above) > _DEPTH_MAX:
                    raise _BrokenError
                above.append((end, shapes, number if kind == _GROUP else 0))
                shapes = (shape.inner if shape is not None else None) or {}
                end = at + size
            else:
                at += size
            continue
        if kind == _GROUP_END:
            if not above or above[-1][2] != number:
                raise _BrokenError
            end, shapes, _ = above.pop()
            continue
        cost += shape.cost if shape is not None else 0
        at = _past(raw, at, end, kind)
    return cost


def _past(raw: bytes, at: int, end: int, kind: int) -> int:
    if kind == _VARINT:
        return _varint(raw, at, end)[1]
    if kind not in (_BITS64, _BITS32):
        raise _BrokenError
    at += 8 if kind == _BITS64 else 4
    if at > end:
        raise _BrokenError
    return at


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if at >= end:
            break
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _BrokenError


@lru_cache(maxsize=16)
def _shapes(message: Message) -> tuple[Mapping[int, _Shape], float]:
    """Return the message's fields by number, and the most memory that one encoded byte can take."""
    known: _Known = {}
    dearest = [1.0]
    shapes = _fields(message.type.DESCRIPTOR, known, dearest)
    return shapes, dearest[0]


def _fields(
    of: Any, known: dict[str, dict[int, _Shape]], dearest: list[float]
) -> dict[int, _Shape]:
    if of.full_name in known:
        return known[of.full_name]
    shapes = known[of.full_name] = {}
    extensions = of.file.pool.FindAllExtensions(of) if of.is_extendable else ()
    for each in (*of.fields, *extensions):
        shape = shapes[each.number] = _shape(each, known, dearest)
        dearest[0] = max(dearest[0], 1 + shape.cost / (shape.least or 2))
    return shapes


def _shape(each: Any, known: _Known, dearest: list[float]) -> _Shape:
    if each.message_type is not None:
        inner = _fields(each.message_type, known, dearest)
        return _Shape(_MESSAGE_BYTES + _CELL_BYTES * _cells(each.message_type, ()), 0, inner)
    cost = _CELL_BYTES if each.type in _NO_TEXTS else _CELL_BYTES + _OBJECT_BYTES
    if each.enum_type is not None:
        cost += 2 * max(map(len, (*each.enum_type.values_by_name, each.enum_type.name)))
    is_packable = each.is_repeated and each.type not in _TEXTS
    least = 8 if each.type in _FIXED64 else 4 if each.type in _FIXED32 else 1
    return _Shape(cost, least if is_packable else 0)


def _cells(of: Any, above: tuple[str, ...]) -> int:
    """Return the number of column values that a message without any set field takes.

    Nested messages are included. A long default value counts as several.
    """
    if of.full_name in above:  # a recursive field, which is no column
        return 1
    cells = 1
    for each in of.fields:
        if each.is_repeated or each.message_type is None:
            default = each.default_value if each.has_default_value else ""
            cells += 1 + (len(default) // _CELL_BYTES if isinstance(default, str | bytes) else 0)
        else:
            cells += 1 + _cells(each.message_type, (*above, of.full_name))
    return cells
