"""How are the sets of sequence numbers of many producers stored and searched at once?

Each set is a list of runs: sorted, disjoint ranges of numbers. The owner of a set is a number that
stands for one producer and epoch. Runs are ordered by owner, then by first number. All operations
are vectorised.

Owner and number are compared as two keys. Sequence numbers have up to 62 bits, so both do not fit
into one 64-bit key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eos.producers.sequences import Flags, Ints


@dataclass(frozen=True, slots=True)
class NumberRanges:
    """Runs (ranges) of accepted numbers of many owners; an owner is a producer's epoch.

    `last` is inclusive. Runs of one owner never overlap. Adjacent runs may be merged or not."""

    owner: Ints
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.owner)

    @classmethod
    def none(cls) -> NumberRanges:
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing)

    def chosen(self, which: Flags) -> NumberRanges:
        return NumberRanges(self.owner[which], self.first[which], self.last[which])

    def ordered_with(self, owner: Ints, numbers: Ints) -> NumberRanges:
        """Return the runs plus a run for each of these numbers, which must be in no run yet."""
        owners = np.concatenate((self.owner, owner))
        first = np.concatenate((self.first, numbers))
        last = np.concatenate((self.last, numbers))
        order = np.lexsort((first, owners))
        return NumberRanges(owners[order], first[order], last[order])

    def merged(self) -> NumberRanges:
        """Return the runs, after merging runs of one owner without a missing number in between."""
        if not len(self):
            return self
        is_start = np.ones(len(self), np.bool_)
        is_start[1:] = (self.owner[1:] != self.owner[:-1]) | (self.first[1:] != self.last[:-1] + 1)
        ends = np.append(is_start[1:], True)
        return NumberRanges(self.owner[is_start], self.first[is_start], self.last[ends])

    def at_or_below(self, owner: Ints, number: Ints) -> Ints:
        """Return, for each number, the index of its owner's last run that begins at or below it.

        -1 means that there is no such run."""
        count = len(self)
        if not count or not len(owner):
            return np.full(len(owner), -1, np.int64)
        is_query = np.repeat(np.array([False, True]), (count, len(owner)))
        owners = np.concatenate((self.owner, owner))
        order = np.lexsort((is_query, np.concatenate((self.first, number)), owners))
        place = np.maximum.accumulate(np.where(order < count, order, -1))
        found = np.empty(len(order), np.int64)
        found[order] = place
        found = found[count:]
        is_own = (found >= 0) & (self.owner[np.maximum(found, 0)] == owner)
        return np.where(is_own, found, -1)

    def hold(self, owner: Ints, number: Ints) -> Flags:
        """Return, for each number, whether a run of its owner contains it."""
        at = self.at_or_below(owner, number)
        if not len(self):
            return np.zeros(len(owner), np.bool_)
        return (at >= 0) & (self.last[at] >= number)

    def first_missing(self, owner: Ints, number: Ints) -> Ints:
        """Return, for each number, the lowest one from it on that is in no run of its owner.

        The runs must be merged."""
        at = self.at_or_below(owner, number)
        if not len(self):
            return number
        found: Ints = np.where((at >= 0) & (self.last[at] >= number), self.last[at] + 1, number)
        return found

    def holes(self, base: Ints) -> tuple[Ints, Flags]:
        """Return where the hole before each run begins, and whether there is a hole.

        A hole is a range of missing numbers. It begins after the owner's previous run, or at the
        owner's base. The runs must be merged and begin at or above their owner's base."""
        start = base[self.owner]
        same = np.flatnonzero(self.owner[1:] == self.owner[:-1])
        start[same + 1] = self.last[same] + 1
        return start, self.first > start

    def filled_from(self, base: Ints) -> Ints:
        """Return, for each owner, the lowest number from its base on that is in no run.

        Each run must begin at or above its owner's base."""
        if not len(self):
            return base
        size: Ints = self.last - self.first + 1
        before = np.cumsum(size) - size
        start = np.searchsorted(self.owner, self.owner)  # where each owner's runs begin
        is_next = self.first - base[self.owner] == before - before[start]
        found: Ints = base.copy()
        np.add.at(found, self.owner[is_next], size[is_next])
        return found


def group_starts(*columns: Ints) -> Flags:
    """Return which rows begin a group: they differ from the row before in one of the columns."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for each in columns:
        found[1:] |= each[1:] != each[:-1]
    return found
