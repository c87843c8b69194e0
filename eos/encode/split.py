"""Cuts each target's rows into record batches that are as large as they may be, and no larger."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eos.kafka.records import varint
from eos.kafka.records.record_batch import HEADER_BYTES, BatchSpan
from eos.kafka.records.sizes import Layout
from eos.kafka.records.varint import Ints

# The most that a record's length (5), timestamp delta (10) and offset delta (5) can take, and the
# least. They depend on the record batch, so most cuts are decided by these bounds alone.
_VARINTS_MOST = 20
_VARINTS_LEAST = 3


def split(rows: Layout, start: int, end: int, bytes_max: int) -> Iterator[BatchSpan]:
    """Spans over the rows `start` to `end` (exclusive), none of them empty.

    Uncompressed, header included, a span's record batch takes `bytes_max` at most, unless it is a
    single record that is larger by itself. Each takes as many rows as fit.
    """
    room = bytes_max - HEADER_BYTES
    ends = np.cumsum(rows.sizes[start:end])  # where each row ends, without its varints
    most = ends + _VARINTS_MOST * np.arange(1, len(ends) + 1)
    least = ends + _VARINTS_LEAST * np.arange(1, len(ends) + 1)
    done = 0
    while done < len(ends):  # each round takes one row at least
        before = int(ends[done - 1]) if done else 0
        if most[-1] - before - _VARINTS_MOST * done <= room:
            taken = len(ends)
        else:
            limit = before + _VARINTS_LEAST * done + room
            candidates = int(np.searchsorted(least, limit, side="right"))
            taken = done + _fitting(rows, start + done, start + candidates, room)
        taken = max(taken, done + 1)
        yield BatchSpan(start + done, start + taken, bytes_max)
        done = taken


def _fitting(rows: Layout, start: int, end: int, room: int) -> int:
    """How many of the rows fit into one record batch, by their exact sizes."""
    if end <= start:
        return 0
    return int(np.searchsorted(np.cumsum(record_sizes(rows, start, end)), room, side="right"))


def record_sizes(rows: Layout, start: int, end: int) -> Ints:
    """The exact bytes of each record if the row `start` begins the record batch."""
    lengths = rows.sizes[start:end] + varint.sizes(varint.zigzag(np.arange(end - start)))
    if rows.timestamps is None:
        lengths += 1
    else:
        times = rows.timestamps[start:end] - rows.timestamps[start]
        lengths += varint.sizes(varint.zigzag(times))
    return lengths + varint.sizes(varint.zigzag(lengths))
