"""Decide the producers that just continue, if a producer's numbers span several partitions.

A continuing producer sent exactly the next sequence numbers of its newest epoch, in any order and
to any partitions. Under any rules the verdict of these records is `appended`. So this module
decides them at once, without sorting, and updates the states in place. `producer_scope` decides the
records of all other producers. For continuing producers it would return the same verdicts and
states, but take several times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, ints_of, longs, one_array
from eos.dedup.buckets import SCOPE_STATES
from eos.dedup.producer_scope import ScopeRules, Stamps
from eos.producers.sequences import Flags, Ints


def advance_continuing(
    states: pa.Table,
    of_states: Ints,
    stamps: Stamps,
    places: pa.Array,
    rules: ScopeRules,
    now_ms: int,
) -> tuple[Flags, pa.Table]:
    """Return a mask of the producers that continue, and the states after their records.

    `of_states` has the number of each state's producer, or -1 if no record has this producer. Each
    number from 0 to the highest one has a record. `places` has the partitions by index."""
    heads = _Heads.of(states, of_states, int(stamps.producer.max(initial=-1)) + 1)
    if not (heads.row >= 0).any():
        return np.zeros(len(heads.row), np.bool_), states
    continues = _continues(heads, stamps, _fenced(states, heads, of_states, stamps, places), rules)
    rows, more = heads.row[continues], np.bincount(stamps.producer)[continues]
    at_ms = ints_of(states.column("at_ms"))
    at_ms[np.append(continues, False)[of_states]] = now_ms  # the last element is that of -1
    return continues, heads.advanced(states, rows, more, at_ms, rules)


@dataclass(frozen=True, slots=True)
class _Heads:
    """The states as arrays. `row` has, for each producer, the state that its records may continue.

    It is the state of the newest epoch, and all of its accepted numbers are one run that ends below
    `base`. Otherwise it is -1. The runs of state n end at `ends[n]` in `first` and `last`."""

    row: Ints
    epoch: Ints
    begin: Ints
    base: Ints
    ends: Ints
    first: Ints
    last: Ints

    @classmethod
    def of(cls, states: pa.Table, of_states: Ints, producers: int) -> _Heads:
        epoch, begin, base = (ints_of(states.column(name)) for name in ("epoch", "begin", "base"))
        lists = one_array(states.column("first"))
        sizes = ints_of(lists.value_lengths())
        ends = np.cumsum(sizes)
        first, last = (ints_of(one_array(states.column(at)).flatten()) for at in ("first", "last"))
        newest = np.full(producers + 1, -1)  # the last element is that of all other producers
        np.maximum.at(newest, of_states, epoch)
        at = np.flatnonzero((of_states >= 0) & (epoch == newest[of_states]) & (sizes == 1))
        at = at[last[ends[at] - 1] == base[at] - 1]
        row = np.full(producers, -1)
        row[of_states[at]] = at
        return cls(row, epoch, begin, base, ends, first, last)

    def advanced(
        self, states: pa.Table, rows: Ints, more: Ints, at_ms: Ints, rules: ScopeRules
    ) -> pa.Table:
        """Return the states, after `more` next numbers were accepted in each state of `rows`.

        This changes the arrays, so it may be called only once."""
        run = self.ends[rows] - 1
        top, lowest = self.base[rows] + more, self.first[run]
        begin = np.maximum(self.begin[rows], top - rules.window)
        self.begin[rows] = np.where(begin >= lowest, top, begin)
        self.base[rows], self.last[run] = top, top - 1
        if rules.wraps:  # numbers more than half of `sequences` back look like newer ones
            self.first[run] = np.maximum(lowest, top - rules.sequences // 2)
        offsets = array_of(np.append(0, self.ends), pa.int32())
        columns = {
            **dict(zip(states.column_names, states.columns, strict=True)),
            "begin": longs(self.begin),
            "base": longs(self.base),
            "first": pa.ListArray.from_arrays(offsets, longs(self.first)),
            "last": pa.ListArray.from_arrays(offsets, longs(self.last)),
            "at_ms": longs(at_ms),
        }
        return pa.table(columns, schema=SCOPE_STATES)


def _continues(heads: _Heads, stamps: Stamps, is_fence: Flags, rules: ScopeRules) -> Flags:
    """Return a mask of the producers whose records have exactly the next numbers.

    `is_fence` marks the records whose partition has their epoch as its fence already."""
    producer, row = stamps.producer, heads.row[stamps.producer]
    counts = np.bincount(producer)
    ahead = stamps.number - heads.base[row]
    if rules.wraps:
        ahead %= rules.sequences
    is_next = (row >= 0) & (stamps.epoch == heads.epoch[row]) & is_fence
    # Numbers within half of `sequences` are unwrapped in the same way in any order.
    is_next &= (ahead >= 0) & (ahead < np.minimum(counts, rules.sequences // 2)[producer])
    # Each of a producer's n records has one of its n places, so all are filled only if no number
    # is missing or occurs twice.
    starts = np.cumsum(counts) - counts
    is_filled = np.zeros(len(producer), np.bool_)
    is_filled[(starts[producer] + ahead)[is_next]] = True
    continues: Flags = np.logical_and.reduceat(is_filled, starts)
    return continues


def _fenced(
    states: pa.Table, heads: _Heads, of_states: Ints, stamps: Stamps, places: pa.Array
) -> Flags:
    """Return which records change no fence: a state of their epoch lists their partition.

    Epoch 0 fences nothing, because no epoch is older."""
    lists = one_array(states.column("partitions"))
    state = np.repeat(np.arange(len(lists)), ints_of(lists.value_lengths()))
    fences = ints_of(pc.index_in(lists.flatten(), value_set=places), null=len(places))
    owner = of_states[state]
    is_own = heads.row[owner] == state  # false for -1: the last producer's row is no such state
    span = len(places) + 1
    known = (owner * span + fences)[is_own]
    found: Flags = (stamps.epoch == 0) | np.isin(stamps.producer * span + stamps.place, known)
    return found
