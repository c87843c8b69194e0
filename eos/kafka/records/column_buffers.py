"""The memory into which the native library decodes records, as buffers of Arrow columns."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from eos.arrow import binaries
from eos.kafka.records.parser import header_name
from eos.native.memory import POOL, layout
from eos.native.structs import HEADER_COST, Column, Decoder, address

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
_COPY_PART = 8  # a batch below 1/8 of the limit is copied, so that it holds no large buffers


class DecodedColumns(NamedTuple):
    """The columns of an Arrow batch that are decoded from records. Topic and partition are not."""

    key: Any
    value: Any
    offset: Any
    timestamp: Any
    timestamp_type: Any
    headers: Any


class _Block:
    """A block of pooled memory, divided into buffers. It is freed with its last Arrow buffer."""

    def __init__(self, *sizes: int) -> None:
        self._starts, total = layout(sizes)
        lease = POOL.lease(total)
        self._buffer = pa.py_buffer(lease)
        self.addresses = [address(lease) + start for start in self._starts]

    def cut(self, index: int, size: int, is_copied: bool) -> Any:
        """Return the first `size` bytes of the buffer `index` as an Arrow buffer."""
        found = self._buffer.slice(self._starts[index], size)
        return pa.py_buffer(found.to_pybytes()) if is_copied else found


class ColumnBuffers:
    """Buffers for the columns of one Arrow batch.

    Keys, values and headers have at most `bytes_max` bytes together, but each has a buffer of that
    size. Most pages of these buffers are never used, and take no memory.
    """

    def __init__(self, decoder: Decoder, rows_max: int, bytes_max: int) -> None:
        """Allocate the buffers, and set the decoder to write rows into them from the first on."""
        self._rows_max, self._bytes_max = rows_max, bytes_max
        ends, bits = 4 * (rows_max + 1), rows_max // 8 + 1
        binary = ends, bytes_max, bits
        self._rows = _Block(*binary, *binary, 8 * rows_max, 8 * rows_max, 4 * rows_max)
        self._headers: _Block | None = None
        at = self._rows.addresses
        decoder.key, decoder.value = _column(at[0:3]), _column(at[3:6])
        decoder.offset, decoder.timestamp, decoder.timestamp_type = at[6:9]
        decoder.list = decoder.list_valid = None
        decoder.rows = decoder.bytes = decoder.headers = decoder.rows_with_headers = 0
        decoder.has_wide_names = 0
        decoder.rows_max, decoder.bytes_max = rows_max, bytes_max

    def add_headers(self, decoder: Decoder) -> None:
        """Allocate buffers for headers. Rows that were decoded before get no headers."""
        count = self._bytes_max // HEADER_COST
        binary = 4 * (count + 1), self._bytes_max, count // 8 + 1
        lists = 4 * (self._rows_max + 1), self._rows_max // 8 + 1
        self._headers = _Block(*lists, *binary, *binary)
        at = self._headers.addresses
        decoder.list, decoder.list_valid = at[0:2]
        decoder.name, decoder.header_value = _column(at[2:5]), _column(at[5:8])
        ctypes.memset(at[0], 0, 4 * (decoder.rows + 1))
        ctypes.memset(at[1], 0, decoder.rows // 8 + 1)

    def columns(self, decoder: Decoder) -> DecodedColumns:
        """Return the decoded rows as Arrow columns, which keep the buffers alive."""
        is_copied = decoder.bytes < self._bytes_max // _COPY_PART
        rows = decoder.rows
        return DecodedColumns(
            _binary(self._rows, 0, decoder.key, rows, is_copied),
            _binary(self._rows, 3, decoder.value, rows, is_copied),
            self._numbers(6, pa.int64(), 8 * rows, is_copied),
            self._numbers(7, TIMESTAMP, 8 * rows, is_copied),
            self._numbers(8, pa.int32(), 4 * rows, is_copied),
            _lists(self._headers, decoder, is_copied),
        )

    def _numbers(self, index: int, kind: Any, size: int, is_copied: bool) -> Any:
        data = self._rows.cut(index, size, is_copied)
        return pa.Array.from_buffers(kind, size * 8 // kind.bit_width, [None, data], null_count=0)


def _column(addresses: Sequence[int]) -> Column:
    """Return an empty column. Its first offset is 0."""
    ctypes.memset(addresses[0], 0, 4)
    return Column(*addresses, 0, 0)


def _binary(block: _Block, first: int, column: Column, rows: int, is_copied: bool) -> Any:
    valid = block.cut(first + 2, -(-rows // 8), is_copied) if column.nulls else None
    ends = block.cut(first, 4 * (rows + 1), is_copied)
    data = block.cut(first + 1, column.used, is_copied)
    return pa.Array.from_buffers(pa.binary(), rows, [valid, ends, data], null_count=column.nulls)


def _lists(block: _Block | None, decoder: Decoder, is_copied: bool) -> Any:
    rows, count = decoder.rows, decoder.headers
    if block is None:
        return pa.nulls(rows, HEADERS)
    names = _binary(block, 2, decoder.name, count, is_copied)
    values = _binary(block, 5, decoder.header_value, count, is_copied)
    names = _text(names) if decoder.has_wide_names else names.view(pa.string())
    pairs = pa.Array.from_buffers(HEADER, count, [None], null_count=0, children=[names, values])
    buffers = [block.cut(1, -(-rows // 8), is_copied), block.cut(0, 4 * (rows + 1), is_copied)]
    nulls = rows - decoder.rows_with_headers
    return pa.Array.from_buffers(HEADERS, rows, buffers, null_count=nulls, children=[pairs])


def _text(names: Any) -> Any:
    """Return header names as text. Bytes that are not UTF-8 are replaced as in Kafka's client."""
    return binaries([header_name(name).encode() for name in names.to_pylist()]).view(pa.string())
