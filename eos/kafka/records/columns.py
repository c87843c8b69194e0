"""Access records in Arrow columns as numpy arrays of bytes and lengths, mostly without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, scalar_of, values_of
from eos.errors import RecordRefusedError
from eos.kafka.records.varint import Ints


@dataclass(frozen=True, slots=True)
class Columns:
    """Records as Arrow columns, one row per record.

    `key` and `value` are binary, large binary, string, large string or null arrays. `headers` has
    lists of (key, value) structs, or of byte strings: all keys, then all values. A null list means
    no headers. `timestamp` has int64 milliseconds. Null, or no column, means the base timestamp.
    """

    key: Any
    value: Any
    headers: Any = None
    timestamp: Any = None

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: Ints) -> Columns:
        order = array_of(rows, pa.int64())
        return Columns(*(None if each is None else each.take(order) for each in self._all()))

    def slice(self, start: int, end: int) -> Columns:
        return Columns(
            *(None if each is None else each.slice(start, end - start) for each in self._all())
        )

    def _all(self) -> tuple[Any, ...]:
        return self.key, self.value, self.headers, self.timestamp


@dataclass(frozen=True, slots=True)
class Blobs:
    """Array, lengths, offsets and bytes of a binary column. A null has length -1 and no bytes."""

    array: Any  # pa.BinaryArray without nulls
    lengths: Ints  # int32, -1 for a null
    offsets: Ints  # int32: the start of each value in `data`, and the end of the last
    data: Ints  # uint8

    @property
    def byte_counts(self) -> Ints:
        """Return the size of each value (int64), 0 for a null."""
        return np.diff(self.offsets).astype(np.int64)


def blobs(array: Any, name: str) -> Blobs:
    """Convert a binary or string column of Arrow. Raise RecordRefusedError for other types.

    `name` is the column's name in the error."""
    binary = as_binary(array, name)
    offsets, data = bytes_of(binary)
    lengths = np.diff(offsets)
    if binary.null_count:
        null = values_of(binary.is_null())
        if lengths[null].any():  # Arrow allows a null value to cover bytes
            binary = pc.fill_null(binary, scalar_of(b"", pa.binary()))
            offsets, data = bytes_of(binary)
            lengths = np.diff(offsets)
        lengths = np.where(null, np.int32(-1), lengths)
        # Use the same buffers without the validity bitmap. With it, Arrow would join a record with
        # a null key or value to null.
        buffers = [None, *binary.buffers()[1:]]
        binary = pa.BinaryArray.from_buffers(
            pa.binary(), len(binary), buffers, null_count=0, offset=binary.offset
        )
    return Blobs(binary, lengths, offsets, data)


def sliced(data: Ints, offsets: Ints) -> Any:
    """Return a binary array made of bytes and int32 offsets."""
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers, null_count=0)


def as_binary(array: Any, name: str) -> Any:
    """Return a column as binary. Raise RecordRefusedError if it is neither binary nor text."""
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.binary())
    if pa.types.is_binary(kind):
        return array
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return array.cast(pa.binary())
    raise RecordRefusedError(
        "record_column_type_invalid",
        f"column {name} has the type {kind}; expected binary or string",
        hint=f"cast {name} to binary or string in the last transform",
        column=name,
        type=str(kind),
    )


def bytes_of(binary: Any) -> tuple[Ints, Ints]:
    """Return offsets and bytes of a binary array. Offsets count from the buffer's beginning."""
    _, offsets, data = binary.buffers()
    rows = len(binary)
    if not rows or offsets is None:
        return np.zeros(rows + 1, np.int32), np.zeros(0, np.uint8)
    where = np.frombuffer(offsets, np.int32, rows + 1, binary.offset * 4)
    return where, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
