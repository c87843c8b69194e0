"""The states of a partition's producers, as arrays that are changed in place.

A row for each producer: what a chunk of records costs follows the rows that it touches. Rows keep
the order in which they were read, bucket by bucket, so that nothing need be sorted to be written.

A record has one number, so a state's ranges are plain numbers, and the newest of them are those of
its run: `last`, the one before it, and so on. Only what lies behind a gap that was accepted, or
before a wrap, is kept one by one, in `older`, until newer numbers took its place. Of a state that
has none of those files have `last` alone; earlier versions wrote the whole run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, binaries, longs, values_of
from eos.dedup.buckets import STATES, bucket_of
from eos.dedup.spool import whole
from eos.producers import table as tables
from eos.producers.sequences import Flags, Ints

_NONE = -1  # no number: as `last`, behind which 0 comes, of a producer that has no state
# Of what files have: there, `first` says the same as `last`.
READ = pa.schema([each for each in STATES if each.name != "first"])
_BY_ROW = tables.schema(pa.int32(), pa.int32())


class PartitionStates:
    """`older` has a column for each row, the newest number last. A producer that was looked for has
    a row, but not always a state."""

    def __init__(self, ranges_max: int) -> None:
        self.producer: Any = binaries([])
        self.bucket, self.epoch, self.last, self.run, self.at_ms = np.zeros((5, 0), np.int64)
        self.older: Ints = np.zeros((ranges_max - 1, 0), np.int64)

    def __len__(self) -> int:
        """How many states there are."""
        return int(np.count_nonzero(self._has_state))

    @property
    def _has_state(self) -> Flags:
        found: Flags = self.last != _NONE
        return found

    def add(self, states: pa.Table, bucket: Ints) -> None:
        """Of producers that have no row yet, as files have them."""
        self._extend(whole(states.column("producer")), bucket, *self._read(states))

    def rows(self, producers: Any, bucket: Ints) -> Ints:
        """The row of each of these, no two of which are the same; who has none gets one."""
        who = values_of(pc.index_in(self.producer, value_set=producers), null=len(producers))
        found = np.full(len(producers) + 1, -1)  # the last: of those that nobody asked for
        found[who] = np.arange(len(who))
        found = found[:-1]
        new = np.flatnonzero(found < 0)
        if len(new):
            found[new] = len(self.bucket) + np.arange(len(new))
            zeros, none = np.zeros(len(new), np.int64), np.full((len(self.older) + 1, len(new)), -1)
            states = zeros, none[0], zeros, zeros, none[1:]
            self._extend(producers.take(longs(new)), bucket[new], *states)
        return found

    def _extend(self, producer: Any, *more: Ints) -> None:
        self.producer = pa.concat_arrays([self.producer, producer])
        mine = (self.bucket, self.epoch, self.last, self.run, self.at_ms, self.older)
        self.bucket, self.epoch, self.last, self.run, self.at_ms, self.older = (
            np.concatenate(both, axis=-1) for both in zip(mine, more, strict=True)
        )

    def go_on(
        self, rows: Ints, sizes: Ints, epoch: Ints, last: Ints, at_ms: int, most: int
    ) -> None:
        """Each of these by so many numbers without a hole, up to `last`. `most`: a run's length."""
        self.epoch[rows], self.last[rows], self.at_ms[rows] = epoch, last, at_ms
        self.run[rows] = run = np.minimum(self.run[rows] + sizes, most)
        is_odd = (self.older[-1:, rows] != _NONE).any(axis=0)
        if is_odd.any():
            rows, own = rows[is_odd], self._own(last[is_odd], run[is_odd])
            for place in range(len(self.older)):
                self.older[place, rows[own > place + 1]] = _NONE

    def states(self, rows: Ints) -> pa.Table:
        """As `producer_batch` takes them, of those rows that have one: a producer's name is its
        row."""
        rows = rows[self._has_state[rows]]
        names = array_of(rows, pa.int32()), array_of(np.zeros(len(rows)), pa.int32())
        return pa.table([*names, *self._written(rows, in_full=True)], schema=_BY_ROW)

    def put(self, states: pa.Table) -> None:
        """As `states` has them."""
        rows = _ints(states.column("producer"))
        (
            self.epoch[rows],
            self.last[rows],
            self.run[rows],
            self.at_ms[rows],
            self.older[:, rows],
        ) = self._read(states)

    def by_bucket(self, buckets: int, *, is_as_read: bool) -> tuple[pa.Table, Ints]:
        """All states, ordered by the bucket that each is in, and those. `is_as_read`: there are as
        many buckets as when they were read."""
        bucket = self.bucket if is_as_read else bucket_of(self.producer, buckets)
        producer = self.producer
        rows: Any = slice(None)
        has_state = self._has_state
        if not has_state.all() or (np.diff(bucket) < 0).any():
            # Numbers of 16 bits, which all buckets fit into, numpy sorts several times faster.
            order = np.argsort(bucket.astype(np.uint16), kind="stable")
            rows = order[has_state[order]]
            bucket, producer = bucket[rows], producer.take(longs(rows))
        columns = self._written(rows, in_full=False)
        return pa.table([producer, *columns], schema=STATES), bucket

    def _own(self, last: Ints, run: Ints) -> Ints:
        """How many of the numbers that are kept `last` and `run` tell."""
        return np.minimum(np.minimum(run, len(self.older) + 1), last + 1)

    def _written(self, rows: Any, *, in_full: bool) -> list[Any]:
        """The columns that a state has, but for its name."""
        last, run, older = self.last[rows], self.run[rows], self.older[:, rows]
        is_odd = (older[-1:] != _NONE).any(axis=0)
        own = np.where(is_odd | in_full, self._own(last, run), 1)
        most = int(own.max(initial=0))
        numbers = last[:, np.newaxis] - np.arange(most - 1, -1, -1)
        counts = own
        if is_odd.any() or int(own.min(initial=most)) < most:
            is_there = np.arange(most, 0, -1) <= own[:, np.newaxis]
            if is_odd.any():
                numbers = np.concatenate((older.T, numbers), axis=1)
                is_there = np.concatenate((older.T != _NONE, is_there), axis=1)
            numbers, counts = numbers[is_there], np.count_nonzero(is_there, axis=1)
        ends = array_of(np.concatenate(([0], np.cumsum(counts))), pa.int32())
        lists = pa.ListArray.from_arrays(ends, longs(numbers.ravel()))
        return [longs(self.epoch[rows]), lists, lists, longs(run), longs(self.at_ms[rows])]

    def _read(self, states: pa.Table) -> tuple[Ints, ...]:
        """What `_written` wrote: epoch, last, run, at_ms, older."""
        epoch, run, at_ms = (_ints(states.column(name)) for name in ("epoch", "run", "at_ms"))
        lists = whole(states.column("last"))
        counts, numbers = _ints(lists.value_lengths()), _ints(lists.flatten())
        ends = np.cumsum(counts)
        last = numbers[ends - 1]
        older = np.full((len(self.older), len(run)), _NONE)
        own = self._own(last, run)
        more = counts - own  # below 0: `last` alone is there, and tells the others
        for back in range(1, int(more.max(initial=0)) + 1):
            has = np.flatnonzero(more >= back)
            older[-back, has] = numbers[ends[has] - own[has] - back]
        return epoch, last, run, at_ms, older


def _ints(values: Any) -> Ints:
    numbers: Ints = values_of(values).astype(np.int64)
    return numbers
