"""Into which memory are records decoded, and when is it used again?

Fresh memory costs more than decoding itself, because the kernel clears each page at its first use.
So a worker uses the buffers of a record batch again, as soon as nothing refers to that batch.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from eos.arrow import binaries
from eos.kafka.records.parser import header_name
from eos.native.structs import HEADER_COST, Column, Decoder

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
_ALIGNMENT = 64
_POOL_MAX = 3  # one is filled while a step has the one before it, and the one after
_COPY_PART = 8  # a batch below this part of the limit is copied, so that it holds no large buffers


class DecodedColumns(NamedTuple):
    """The columns of an Arrow batch that come from the records."""

    key: Any
    value: Any
    offset: Any
    timestamp: Any
    timestamp_type: Any
    headers: Any


class _Block:
    """One piece of memory for several buffers. A lease ends when its last Arrow buffer is gone."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.starts: list[int] = []
        total = 0
        for size in sizes:
            self.starts.append(total)
            total += -(-size // _ALIGNMENT) * _ALIGNMENT
        self._memory = np.empty(total + _ALIGNMENT, np.uint8)
        address = self._memory.__array_interface__["data"][0]
        self._skipped = -address % _ALIGNMENT
        self._leased: weakref.ref[Any] | None = None
        self._buffer: Any = None
        self.address = address + self._skipped

    def lease(self) -> None:
        """Begin a new lease. The one before must have ended."""
        # The Arrow buffer and all slices of it keep this view alive, and only they do.
        view = self._memory[self._skipped :]
        self._leased = weakref.ref(view)
        self._buffer = pa.py_buffer(view)

    def release(self) -> None:
        """End this block's own part of the lease."""
        self._buffer = None

    @property
    def is_free(self) -> bool:
        return self._leased is None or self._leased() is None

    def cut(self, index: int, size: int, is_copied: bool) -> Any:
        """Return the first bytes of a buffer as an Arrow buffer."""
        found = self._buffer.slice(self.starts[index], size)
        return pa.py_buffer(found.to_pybytes()) if is_copied else found


class ColumnBuffers:
    """Buffers for the columns of one Arrow batch.

    Together, keys, values and headers have at most `bytes_max` bytes. Pages that are not used take
    no memory."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self.rows_max, self.bytes_max = rows_max, bytes_max
        bits = rows_max // 8 + 1
        ends = 4 * (rows_max + 1)
        self._rows = _Block(
            [ends, bytes_max, bits, ends, bytes_max, bits, 8 * rows_max, 8 * rows_max, 4 * rows_max]
        )
        self._headers: _Block | None = None
        self._is_copied = False

    @property
    def is_free(self) -> bool:
        return self._rows.is_free and (self._headers is None or self._headers.is_free)

    def begin(self, decoder: Decoder) -> None:
        """Lease the buffers to the decoder, without rows."""
        self._rows.lease()
        at = [self._rows.address + start for start in self._rows.starts]
        decoder.key, decoder.value = _column(at[0:3]), _column(at[3:6])
        decoder.offset, decoder.timestamp, decoder.timestamp_type = at[6:9]
        decoder.list = decoder.list_valid = None
        decoder.rows = decoder.bytes = decoder.headers = decoder.rows_with_headers = 0
        decoder.has_wide_names = 0
        decoder.rows_max, decoder.bytes_max = self.rows_max, self.bytes_max

    def begin_headers(self, decoder: Decoder) -> None:
        """Add buffers for headers. The rows so far have none."""
        if self._headers is None:
            count = self.bytes_max // HEADER_COST
            bits, ends = count // 8 + 1, 4 * (count + 1)
            of_rows = [4 * (self.rows_max + 1), self.rows_max // 8 + 1]
            of_headers = [ends, self.bytes_max, bits, ends, self.bytes_max, bits]
            self._headers = _Block(of_rows + of_headers)
        self._headers.lease()
        at = [self._headers.address + start for start in self._headers.starts]
        decoder.list, decoder.list_valid = at[0:2]
        decoder.name, decoder.header_value = _column(at[2:5]), _column(at[5:8])
        rows = decoder.rows
        ctypes.memset(at[0], 0, 4 * (rows + 1))
        ctypes.memset(at[1], 0, rows // 8 + 1)

    def discard(self) -> None:
        """End the lease without columns."""
        self._rows.release()
        if self._headers is not None:
            self._headers.release()

    def finish(self, decoder: Decoder) -> DecodedColumns:
        """Return the columns. The lease ends when they are gone."""
        self._is_copied = decoder.bytes < self.bytes_max // _COPY_PART
        rows = decoder.rows
        columns = DecodedColumns(
            self._binary(self._rows, 0, pa.binary(), decoder.key, rows),
            self._binary(self._rows, 3, pa.binary(), decoder.value, rows),
            self._numbers(6, pa.int64(), 8, rows),
            self._numbers(7, TIMESTAMP, 8, rows),
            self._numbers(8, pa.int32(), 4, rows),
            self._lists(decoder),
        )
        self.discard()
        return columns

    def _numbers(self, index: int, kind: Any, width: int, rows: int) -> Any:
        data = self._rows.cut(index, width * rows, self._is_copied)
        return pa.Array.from_buffers(kind, rows, [None, data], null_count=0)

    def _binary(self, block: _Block, first: int, kind: Any, column: Column, rows: int) -> Any:
        copied = self._is_copied
        valid = block.cut(first + 2, -(-rows // 8), copied) if column.nulls else None
        ends = block.cut(first, 4 * (rows + 1), copied)
        data = block.cut(first + 1, column.used, copied)
        return pa.Array.from_buffers(kind, rows, [valid, ends, data], null_count=column.nulls)

    def _lists(self, decoder: Decoder) -> Any:
        rows, count, copied = decoder.rows, decoder.headers, self._is_copied
        if not decoder.list or self._headers is None:
            return pa.nulls(rows, HEADERS)
        names = self._binary(self._headers, 2, pa.binary(), decoder.name, count)
        values = self._binary(self._headers, 5, pa.binary(), decoder.header_value, count)
        names = as_text(names) if decoder.has_wide_names else names.view(pa.string())
        pairs = pa.Array.from_buffers(HEADER, count, [None], null_count=0, children=[names, values])
        valid = self._headers.cut(1, -(-rows // 8), copied)
        ends = self._headers.cut(0, 4 * (rows + 1), copied)
        nulls = rows - decoder.rows_with_headers
        return pa.Array.from_buffers(
            HEADERS, rows, [valid, ends], null_count=nulls, children=[pairs]
        )


def _column(addresses: Sequence[int]) -> Column:
    """Return an empty column. Its first offset is 0."""
    ctypes.memset(addresses[0], 0, 4)
    return Column(*addresses, 0, 0)


def as_text(names: Any) -> Any:
    """Return header names as text. Bytes that are not UTF-8 are replaced as in Kafka's client."""
    return binaries([header_name(name).encode() for name in names.to_pylist()]).view(pa.string())


class BufferPool:
    """Buffers that this process has used before. An entry may still be referred to."""

    def __init__(self) -> None:
        self._kept: list[ColumnBuffers] = []
        self._lock = threading.Lock()

    def take(self, rows_max: int, bytes_max: int) -> ColumnBuffers:
        with self._lock:
            for index, each in enumerate(self._kept):
                if (each.rows_max, each.bytes_max) == (rows_max, bytes_max) and each.is_free:
                    return self._kept.pop(index)
        return ColumnBuffers(rows_max, bytes_max)

    def give_back(self, buffers: ColumnBuffers) -> None:
        with self._lock:
            self._kept.append(buffers)
            del self._kept[:-_POOL_MAX]
