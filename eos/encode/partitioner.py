"""Assign each record to a partition of its target topic.

Records with a key get the same partition as with Kafka's Java client. The functions work on whole
columns.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from eos.encode.sink_spec import Partitioner
from eos.kafka.records.columns import Blobs
from eos.kafka.records.murmur2 import murmur2
from eos.kafka.records.native_rows import SourceColumn
from eos.kafka.records.varint import Ints
from eos.native import library
from eos.native.structs import address

# Records without a key are assigned in runs of at least this size, however many partitions there
# are. Kafka's own producer changes the partition at the same size (batch.size).
_RUN_BYTES_MIN = 16 * 1024
_RECORD_OVERHEAD_BYTES = 16


@dataclass(slots=True)
class Turn:
    """The number of the next partition of one topic, for records without a key. It continues across
    chunks of rows."""

    next: int

    def reserve(self, many: int) -> int:
        """Reserve the next `many` numbers, and return the first of them. A number modulo the
        partition count is a partition."""
        first = self.next
        self.next += many
        return first


def all_by_key(keys: Any, name: str, count: int) -> Ints | None:
    """Return each key's partition like `by_key`, but directly from an Arrow column.

    Return None if a key is null, or without the native library. `name` is the column's name in
    errors.
    """
    native = library.load()
    if native is None:
        return None
    column = SourceColumn(keys, name)
    chosen: Ints = np.empty(len(keys), np.int64)
    nulls = native.eos_partition(ctypes.byref(column.struct), count, address(chosen))
    if nulls < 0:
        raise ValueError(f"column {name} is no valid Arrow array")
    return None if nulls else chosen


def by_key(keys: Blobs, count: int) -> Ints:
    """Return each key's partition as Kafka's Java client computes it:
    Utils.toPositive(murmur2(key)) % count."""
    if count == 1:
        return np.zeros(len(keys.lengths), np.int64)
    hashes = murmur2(keys.data, keys.offsets[:-1], np.diff(keys.offsets))
    chosen: Ints = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    return chosen.astype(np.int64)


def in_turn(rows: int, count: int, turn: Turn) -> Ints:
    """Return the partitions of `rows` records that are assigned round-robin, one record each."""
    turns: Ints = turn.reserve(rows) + np.arange(rows)
    return turns % count


def in_runs(byte_counts: Ints, count: int, bytes_max: int, turn: Turn) -> Ints:
    """Return the partitions of records without a key. Consecutive records share a partition until
    it has about a record batch (at least 16 KiB); the next run uses the next partition.

    Runs are short enough that a chunk reaches all partitions, if it is large enough for that.
    """
    if not len(byte_counts):
        return np.zeros(0, np.int64)
    ends = np.cumsum(byte_counts + _RECORD_OVERHEAD_BYTES)
    share = min(int(ends[-1]) // count, bytes_max - bytes_max // 16) + 1
    run = (ends - ends[0]) // max(_RUN_BYTES_MIN, share)
    # A record larger than a run skips run numbers. Number the runs again, so that no partition is
    # left out.
    run = np.cumsum(np.diff(run, prepend=run[0]) > 0)
    return (turn.reserve(int(run[-1]) + 1) + run) % count


def partitions(
    keys: Blobs, byte_counts: Ints, count: int, bytes_max: int, how: Partitioner, turn: Turn
) -> Ints:
    """Return the partition of each record of one topic, in the order of the records."""
    if how is Partitioner.ROUND_ROBIN:
        return in_turn(len(byte_counts), count, turn)
    keyless = np.flatnonzero(keys.lengths < 0)
    if len(keyless) == len(byte_counts):
        return in_runs(byte_counts, count, bytes_max, turn)
    chosen = by_key(keys, count)
    chosen[keyless] = in_runs(byte_counts[keyless], count, bytes_max, turn)
    return chosen
