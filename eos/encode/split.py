"""Split the rows of a target partition into record batches within the size limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eos.kafka.records import varint
from eos.kafka.records.native_rows import NativeRows
from eos.kafka.records.record_batch import HEADER_BYTES, BatchSpan
from eos.kafka.records.sizes import Layout
from eos.kafka.records.varint import Ints

# The most and the fewest bytes of a record's three varints: length (5 at most), timestamp delta
# (10) and offset delta (5). The exact sizes depend on the record batch, but mostly these bounds are
# enough to decide where a record batch ends.
_VARINTS_MOST = 20
_VARINTS_LEAST = 3


def split(rows: Layout | NativeRows, start: int, end: int, bytes_max: int) -> Iterator[BatchSpan]:
    """Yield spans of the rows from `start` up to `end` (exclusive), one for each record batch.

    No span is empty, and each has as many rows as fit. Uncompressed and with its header, a record
    batch has `bytes_max` bytes at most. A single record that is larger is a span of its own.
    """
    room = bytes_max - HEADER_BYTES
    if isinstance(rows, NativeRows):
        while start < end:
            length = max(1, rows.fitting(start, end, room))
            yield BatchSpan(start, start + length, bytes_max)
            start += length
        return
    ends = np.cumsum(rows.sizes[start:end])  # the end of each row in bytes, without its varints
    most = ends + _VARINTS_MOST * np.arange(1, len(ends) + 1)
    least = ends + _VARINTS_LEAST * np.arange(1, len(ends) + 1)
    done = 0
    while done < len(ends):  # terminates: each span has at least one row
        before = int(ends[done - 1]) if done else 0
        if most[-1] - before - _VARINTS_MOST * done <= room:
            length = len(ends)
        else:
            limit = before + _VARINTS_LEAST * done + room
            candidates = int(np.searchsorted(least, limit, side="right"))
            length = done + _fitting(rows, start + done, start + candidates, room)
        length = max(length, done + 1)
        yield BatchSpan(start + done, start + length, bytes_max)
        done = length


def _fitting(rows: Layout, start: int, end: int, room: int) -> int:
    """Return how many of the rows from `start` on fit into one record batch, by their exact
    sizes."""
    if end <= start:
        return 0
    return int(np.searchsorted(np.cumsum(record_sizes(rows, start, end)), room, side="right"))


def record_sizes(rows: Layout | NativeRows, start: int, end: int) -> Ints:
    """Return the exact size in bytes of each record in a record batch that begins with row
    `start`."""
    lengths = rows.sizes[start:end] + varint.sizes(varint.zigzag(np.arange(end - start)))
    if rows.timestamps is None:
        lengths += 1
    else:
        times = rows.timestamps[start:end] - rows.timestamps[start]
        lengths += varint.sizes(varint.zigzag(times))
    return lengths + varint.sizes(varint.zigzag(lengths))
