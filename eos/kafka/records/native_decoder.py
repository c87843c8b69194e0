"""Decode record batches into Arrow columns with the native library.

The library walks the records once and copies keys, values and headers into the columns. It checks
every length against the remaining bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from eos.kafka.records.batch_headers import Batch
from eos.kafka.records.column_buffers import ColumnBuffers, DecodedColumns
from eos.kafka.records.decompression import BrokenPayloadError
from eos.native.structs import DONE, FULL, NEEDS_HEADERS, TOO_LARGE, Decoder, reason

_INT32_MAX = 2**31 - 1


class NativeDecoder:
    """Decoder of record batches into Arrow columns, which calls the native library."""

    def __init__(self, library: Any, rows_max: int, bytes_max: int) -> None:
        self._library = library
        self._limits = rows_max, bytes_max
        self._decoder = Decoder()
        self._buffers: ColumnBuffers | None = None

    def add(self, batch: Batch, records: Any, start: int, end: int) -> Iterator[DecodedColumns]:
        """Append the batch's records with start <= offset < end; yield each full Arrow batch.

        `records` has the batch's uncompressed bytes."""
        decoder, data = self._decoder, np.frombuffer(records, np.uint8)
        self._point_at(batch, data, start, end)
        while True:
            if self._buffers is None:
                self._buffers = ColumnBuffers(decoder, *self._limits)
            result = self._library.eos_decode(ctypes.byref(decoder))
            if result == DONE:
                return
            if result == NEEDS_HEADERS:
                self._buffers.add_headers(decoder)
            elif result == FULL:
                yield self._finish(self._buffers)
            elif result == TOO_LARGE:  # the record exceeds the limit: use buffers just for it
                if decoder.record_bytes > _INT32_MAX:
                    raise BrokenPayloadError(f"a record of {decoder.record_bytes} bytes")
                self._buffers = ColumnBuffers(decoder, 1, decoder.record_bytes)
            else:
                place = (
                    f"record {decoder.done} of {batch.records}, byte {decoder.at} of {len(data)}"
                )
                raise BrokenPayloadError(f"{reason(decoder.error)} ({place})")

    def flush(self) -> DecodedColumns | None:
        if self._buffers is None or not self._decoder.rows:
            return None
        return self._finish(self._buffers)

    def _point_at(self, batch: Batch, data: Any, start: int, end: int) -> None:
        """Set the decoder to read this record batch from its first record on."""
        decoder = self._decoder
        decoder.records = data.__array_interface__["data"][0]
        decoder.length, decoder.count = len(data), batch.records
        decoder.base_offset, decoder.delta_max = batch.offset, batch.last_offset - batch.offset
        decoder.first_ms = batch.first_ms
        decoder.is_append_time = batch.append_ms is not None
        decoder.append_ms = batch.append_ms or 0
        decoder.start, decoder.end = start, end
        decoder.at = decoder.done = 0

    def _finish(self, buffers: ColumnBuffers) -> DecodedColumns:
        self._buffers = None
        return buffers.columns(self._decoder)
