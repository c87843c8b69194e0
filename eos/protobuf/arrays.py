"""Convert Python values of Protobuf fields into Arrow arrays of the types that Spark expects.

The arrays are made from buffers, because `pyarrow.array` would import pandas (`eos/arrow.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from eos.protobuf.fields import Field, Fields, Label

_TYPES = {
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DECIMAL(20,0)": pa.decimal128(20, 0),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "INTERVAL DAY TO SECOND": pa.duration("us"),
}
_NUMPY = {"INT": np.int32, "FLOAT": np.float32, "DOUBLE": np.float64}  # the others have 64 bits
_DECIMAL_BYTES = 16
_OFFSET_MAX = (1 << 31) - 1  # limit of Spark's Arrow lists and texts


class TooLargeError(Exception):
    """Error of a column with 2^31 or more text bytes or list elements in one Arrow batch."""


def records(fields: Fields, rows: Sequence[list[Any] | None]) -> Any:
    """Return rows of Python values as an Arrow struct array.

    A row has the values of all fields in order. A row that is None becomes a null struct."""
    children = [
        _column(field, [None if row is None else row[at] for row in rows])
        for at, field in enumerate(fields)
    ]
    return pa.Array.from_buffers(_struct(fields), len(rows), [_valid(rows)], children=children)


def binaries(values: list[bytes | None]) -> Any:
    return _bytes(pa.binary(), values)


def _bytes(kind: Any, values: Sequence[bytes | None]) -> Any:
    raw = [b"" if each is None else each for each in values]
    offsets = _offsets([len(each) for each in raw])  # check offsets before joining the bytes
    buffers = [_valid(values), offsets, pa.py_buffer(b"".join(raw))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _column(field: Field, values: list[Any]) -> Any:
    if field.label is Label.ONE:
        return _ones(field, values)
    lengths = [0 if each is None else len(each) for each in values]
    inner = [item for each in values if each is not None for item in each]
    if field.key is None:
        child = _ones(field, inner)
    else:
        keys, of_keys = _ones(field.key, [key for key, _ in inner]), _values(field)
        entries = pa.struct([pa.field("key", keys.type, nullable=False), ("value", of_keys)])
        both = [keys, _ones(field, [value for _, value in inner])]
        child = pa.Array.from_buffers(entries, len(inner), [None], children=both)
    buffers = [_valid(values), _offsets(lengths)]
    return pa.Array.from_buffers(_type(field), len(values), buffers, children=[child])


def _ones(field: Field, values: list[Any]) -> Any:
    if field.fields:
        return records(field.fields, values)
    kind, sql = _TYPES[field.sql], field.sql
    if sql in ("STRING", "BINARY"):
        return _bytes(kind, values)
    buffers = [_valid(values)]
    if sql == "BOOLEAN":
        buffers.append(_bits([bool(each) for each in values]))
    elif sql == "DECIMAL(20,0)":
        raw = [(each or 0).to_bytes(_DECIMAL_BYTES, "little") for each in values]
        buffers.append(pa.py_buffer(b"".join(raw)))
    else:
        numbers = [0 if each is None else each for each in values]
        buffers.append(pa.py_buffer(np.array(numbers, _NUMPY.get(sql, np.int64))))
    return pa.Array.from_buffers(kind, len(values), buffers)


def _valid(values: Sequence[Any]) -> Any:
    """Return the validity bitmap; None if no value is null."""
    if None not in values:
        return None
    return _bits([each is not None for each in values])


def _bits(values: list[bool]) -> Any:
    return pa.py_buffer(np.packbits(np.array(values, np.bool_), bitorder="little"))


def _offsets(lengths: list[int]) -> Any:
    total = sum(lengths)
    if total > _OFFSET_MAX:
        raise TooLargeError(f"{total} bytes or elements; the limit is {_OFFSET_MAX}")
    found = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=found[1:])
    return pa.py_buffer(found)


def _struct(fields: Fields) -> Any:
    return pa.struct([pa.field(each.name, _type(each)) for each in fields])


def _values(field: Field) -> Any:
    return _struct(field.fields) if field.fields else _TYPES[field.sql]


def _type(field: Field) -> Any:
    if field.key is not None:
        return pa.map_(_TYPES[field.key.sql], _values(field))
    return pa.list_(_values(field)) if field.label is Label.LIST else _values(field)
