"""Decode record batches into Arrow columns in Python, where the native library is missing.

This takes some seconds for a million records. If the driver lacks the native library, it chooses
Spark's Kafka source. So only an executor that lacks the library decodes this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, binaries, longs
from eos.kafka.records.batch_headers import Batch
from eos.kafka.records.column_buffers import HEADER, HEADERS, TIMESTAMP, DecodedColumns
from eos.kafka.records.decompression import BrokenPayloadError
from eos.kafka.records.parser import StoredRecord, parse
from eos.native.structs import HEADER_COST

_INT64_MAX = 2**63 - 1


class _Row(NamedTuple):
    record: StoredRecord
    is_append_time: bool


class PythonDecoder:
    """Decoder of record batches into Arrow columns, with the same results as NativeDecoder."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._rows: list[_Row] = []
        self._bytes = 0

    def add(self, batch: Batch, records: Any, start: int, end: int) -> Iterator[DecodedColumns]:
        """Append the batch's records with start <= offset < end; yield each full Arrow batch.

        `records` has the batch's uncompressed bytes."""
        for record in parse(batch, bytes(records)):
            if record.offset > _INT64_MAX:
                raise BrokenPayloadError(f"an offset of {record.offset}")
            if not start <= record.offset < end:
                continue
            size = record.bytes + HEADER_COST * len(record.headers)
            is_full = len(self._rows) >= self._rows_max or self._bytes + size > self._bytes_max
            if self._rows and is_full:
                yield self._finish()
            self._rows.append(_Row(record, batch.append_ms is not None))
            self._bytes += size

    def flush(self) -> DecodedColumns | None:
        return self._finish() if self._rows else None

    def _finish(self) -> DecodedColumns:
        rows, self._rows, self._bytes = self._rows, [], 0
        records = [row.record for row in rows]
        return DecodedColumns(
            _binary([record.key for record in records]),
            _binary([record.value for record in records]),
            longs([record.offset for record in records]),
            longs([_microseconds(record.timestamp_ms) for record in records]).view(TIMESTAMP),
            array_of([int(row.is_append_time) for row in rows], pa.int32()),
            _lists(records),
        )


def _microseconds(timestamp_ms: int) -> int:
    """Return a time in microseconds; the nearest one that fits if a producer set an absurd time."""
    return min(max(timestamp_ms * 1000, -_INT64_MAX - 1), _INT64_MAX)


def _binary(values: Sequence[bytes | None]) -> Any:
    """Return a binary array, made from buffers, because `pyarrow.array` would import pandas."""
    filled = binaries([value or b"" for value in values])
    is_null = np.array([value is None for value in values], np.bool_)
    buffers = [_bits(~is_null), *filled.buffers()[1:]]
    nulls = int(is_null.sum())
    return pa.Array.from_buffers(pa.binary(), len(values), buffers, null_count=nulls)


def _lists(records: Sequence[StoredRecord]) -> Any:
    counts = np.array([len(record.headers) for record in records], np.int32)
    first = np.zeros(len(records) + 1, np.int32)
    np.cumsum(counts, out=first[1:])
    listed = [each for record in records for each in record.headers]
    names = _binary([name.encode() for name, _ in listed]).view(pa.string())
    values = _binary([value for _, value in listed])
    pairs = pa.Array.from_buffers(
        HEADER, len(listed), [None], null_count=0, children=[names, values]
    )
    buffers = [_bits(counts > 0), pa.py_buffer(first)]
    nulls = int((counts == 0).sum())
    return pa.Array.from_buffers(HEADERS, len(records), buffers, null_count=nulls, children=[pairs])


def _bits(flags: Any) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
