"""Which partition of its topic each record goes to: Kafka's own choice, for a column of keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eos.encode.sink_spec import Partitioner
from eos.kafka.records.columns import Blobs
from eos.kafka.records.murmur2 import murmur2
from eos.kafka.records.varint import Ints

__all__ = ["Partitioner", "Turn", "by_key", "in_runs", "in_turn", "partitions"]

# A run of keyless records isn't made smaller than this, however many partitions there are: the
# size at which Kafka's own producer moves on to another partition (batch.size).
_RUN_BYTES_MIN = 16 * 1024
_RECORD_OVERHEAD_BYTES = 16


@dataclass(slots=True)
class Turn:
    """Whose turn it is among the partitions of one topic. It goes on from chunk to chunk."""

    next: int

    def take(self, many: int) -> int:
        """The first of so many turns."""
        first = self.next
        self.next += many
        return first


def by_key(keys: Blobs, count: int) -> Ints:
    """The Java client's partition for each key: Utils.toPositive(murmur2(key)) % count."""
    if count == 1:
        return np.zeros(len(keys.lengths), np.int64)
    hashes = murmur2(keys.data, keys.offsets[:-1], np.diff(keys.offsets))
    positive: Ints = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64)
    return positive % count


def in_turn(rows: int, count: int, turn: Turn) -> Ints:
    """Every record another partition."""
    turns: Ints = turn.take(rows) + np.arange(rows)
    return turns % count


def in_runs(byte_counts: Ints, count: int, bytes_max: int, turn: Turn) -> Ints:
    """Records without a key: another partition for each run of about a record batch.

    A chunk is spread over all partitions as evenly as its size allows: one record batch of it on
    each is better than two on one.
    """
    if not len(byte_counts):
        return np.zeros(0, np.int64)
    ends = np.cumsum(byte_counts + _RECORD_OVERHEAD_BYTES)
    share = min(int(ends[-1]) // count, bytes_max - bytes_max // 16) + 1
    run = (ends - ends[0]) // max(_RUN_BYTES_MIN, share)
    # A record larger than a run leaves numbers out, which would leave partitions out.
    run = np.cumsum(np.diff(run, prepend=run[0]) > 0)
    return (turn.take(int(run[-1]) + 1) + run) % count


def partitions(
    keys: Blobs, byte_counts: Ints, count: int, bytes_max: int, how: Partitioner, turn: Turn
) -> Ints:
    """The partition of each record of one topic, in the order of the records."""
    if how is Partitioner.ROUND_ROBIN:
        return in_turn(len(byte_counts), count, turn)
    keyless = np.flatnonzero(keys.lengths < 0)
    if len(keyless) == len(byte_counts):
        return in_runs(byte_counts, count, bytes_max, turn)
    chosen = by_key(keys, count)
    chosen[keyless] = in_runs(byte_counts[keyless], count, bytes_max, turn)
    return chosen
