"""How does dedup hold the states of a source partition's producers in memory?

A state has a producer's newest epoch and the sequence numbers that were accepted in it.

The states are arrays with one row per producer, which each chunk of records changes in place. Rows
keep the order in which they were read from the state files, bucket by bucket. They are sorted
before they are written only if a new producer has disturbed this order.

Each record has one sequence number, so the ranges of a state are single numbers. The newest numbers
follow from `last` and `run`: `last`, `last - 1`, and so on. Numbers before an accepted gap or
before a wrap do not follow from them, and are stored in `older` until newer numbers replace them.
In a state file, the column `last` lists the numbers that do not follow from the column `run`. Files
of earlier releases list all numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, ints_of, longs, one_array
from eos.dedup.buckets import STATES, bucket_of
from eos.dedup.producer_index import ProducerIndex
from eos.producers import table as tables
from eos.producers.sequences import Flags, Ints

_NONE = -1  # no number; if `last` has this value, the row has no state, and the next number is 0
# The columns to read from a file: `first` equals `last` there, so it is left out.
READ = pa.schema([each for each in STATES if each.name != "first"])


class PartitionStates:
    """States of a source partition's producers; row n of a state is element n of each array.

    `older` has one column per producer, with the newest number last. The lookup of a new producer
    adds a row for it, so a row may have no state."""

    def __init__(self, ranges_max: int) -> None:
        self._index = ProducerIndex()
        self.bucket, self.epoch, self.last, self.run, self.at_ms = np.zeros((5, 0), np.int64)
        self.older: Ints = np.zeros((ranges_max - 1, 0), np.int64)

    def __len__(self) -> int:
        """Return the number of states."""
        return int(np.count_nonzero(self._has_state))

    @property
    def _has_state(self) -> Flags:
        found: Flags = self.last != _NONE
        return found

    def add(self, states: pa.Table, bucket: Ints) -> None:
        """Add the states of a file. Their producers must not have a row yet."""
        self._index.extend(one_array(states.column("producer")))
        self._extend(bucket, *self._read(states))

    def rows(self, producers: Any, bucket: Ints) -> Ints:
        """Return each producer's row. The producers must be distinct; a new one gets a new row."""
        found = self._index.add(producers)
        new = np.flatnonzero(found >= len(self.bucket))
        if len(new):
            zeros, none = np.zeros(len(new), np.int64), np.full((len(self.older) + 1, len(new)), -1)
            self._extend(bucket[new], zeros, none[0], zeros, zeros, none[1:])
        return found

    @property
    def producer(self) -> Any:
        return self._index.ids

    def _extend(self, *more: Ints) -> None:
        mine = (self.bucket, self.epoch, self.last, self.run, self.at_ms, self.older)
        self.bucket, self.epoch, self.last, self.run, self.at_ms, self.older = (
            np.concatenate(both, axis=-1) for both in zip(mine, more, strict=True)
        )

    def advance(
        self, rows: Ints, sizes: Ints, epoch: Ints, last: Ints, at_ms: int, most: int
    ) -> None:
        """Add `sizes` consecutive accepted numbers, up to `last`, to the state of each row.

        `most` is the limit of `run`, the count of consecutive accepted numbers."""
        self.epoch[rows], self.last[rows], self.at_ms[rows] = epoch, last, at_ms
        self.run[rows] = run = np.minimum(self.run[rows] + sizes, most)
        is_filled = (self.older[-1:, rows] != _NONE).any(axis=0)
        if is_filled.any():
            rows, own = rows[is_filled], self._own(last[is_filled], run[is_filled])
            for place in range(len(self.older)):
                self.older[place, rows[own > place + 1]] = _NONE

    def states(self, rows: Ints) -> pa.Table:
        """Return the states of these rows as a table for `producers.batch`.

        The column `producer` has row numbers. Rows without a state are left out."""
        rows = rows[self._has_state[rows]]
        columns = self._written(rows, in_full=True)
        return pa.table([array_of(rows, pa.int32()), *columns], schema=tables.SCHEMA)

    def put(self, states: pa.Table) -> None:
        """Replace the states of the rows that the table names; it has the form of `states`."""
        rows = ints_of(states.column("producer"))
        (
            self.epoch[rows],
            self.last[rows],
            self.run[rows],
            self.at_ms[rows],
            self.older[:, rows],
        ) = self._read(states)

    def by_bucket(self, buckets: int, *, is_as_read: bool) -> tuple[pa.Table, Ints]:
        """Return all states ordered by bucket, and the bucket of each.

        `is_as_read` means that the number of buckets has not changed since the states were read."""
        bucket = self.bucket if is_as_read else bucket_of(self.producer, buckets)
        producer = self.producer
        rows: Any = slice(None)
        has_state = self._has_state
        if not has_state.all() or (np.diff(bucket) < 0).any():
            # All bucket numbers fit into 16 bits, which numpy sorts several times faster.
            order = np.argsort(bucket.astype(np.uint16), kind="stable")
            rows = order[has_state[order]]
            bucket, producer = bucket[rows], producer.take(longs(rows))
        columns = self._written(rows, in_full=False)
        return pa.table([producer, *columns], schema=STATES), bucket

    def _own(self, last: Ints, run: Ints) -> Ints:
        """Return how many of the newest numbers need no `older`, as `last` and `run` imply them."""
        return np.minimum(np.minimum(run, len(self.older) + 1), last + 1)

    def _written(self, rows: Any, *, in_full: bool) -> list[Any]:
        """Return the columns of the states, without the producer's id."""
        last, run, older = self.last[rows], self.run[rows], self.older[:, rows]
        is_filled = (older[-1:] != _NONE).any(axis=0)
        own = np.where(is_filled | in_full, self._own(last, run), 1)
        most = int(own.max(initial=0))
        numbers = last[:, np.newaxis] - np.arange(most - 1, -1, -1)
        counts = own
        if is_filled.any() or int(own.min(initial=most)) < most:
            is_there = np.arange(most, 0, -1) <= own[:, np.newaxis]
            if is_filled.any():
                numbers = np.concatenate((older.T, numbers), axis=1)
                is_there = np.concatenate((older.T != _NONE, is_there), axis=1)
            numbers, counts = numbers[is_there], np.count_nonzero(is_there, axis=1)
        ends = array_of(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        lists = pa.ListArray.from_arrays(ends, longs(numbers.ravel()))
        return [longs(self.epoch[rows]), lists, lists, longs(run), longs(self.at_ms[rows])]

    def _read(self, states: pa.Table) -> tuple[Ints, ...]:
        """Return epoch, last, run, at_ms and older from the columns that `_written` returned."""
        epoch, run, at_ms = (ints_of(states.column(name)) for name in ("epoch", "run", "at_ms"))
        lists = one_array(states.column("last"))
        counts, numbers = ints_of(lists.value_lengths()), ints_of(lists.flatten())
        ends = np.cumsum(counts)
        last = numbers[ends - 1]
        older = np.full((len(self.older), len(run)), _NONE)
        own = self._own(last, run)
        more = counts - own  # below 0 if only `last` was written, from which the others follow
        for back in range(1, int(more.max(initial=0)) + 1):
            has = np.flatnonzero(more >= back)
            older[-back, has] = numbers[ends[has] - own[has] - back]
        return epoch, last, run, at_ms, older
