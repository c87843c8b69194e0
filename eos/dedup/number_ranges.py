"""Sets of numbers as runs: sorted, disjoint ranges, of many owners at once. No Python per number.

An owner is the number of a group; runs are ordered by owner, then by where they begin. All numbers
are compared as they are: those of 62 bits leave no room for a key of owner and number in one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eos.producers.sequences import Flags, Ints


@dataclass(frozen=True, slots=True)
class NumberRanges:
    """`last` is inclusive. Of one owner no two overlap; where they touch they may be one run or
    two."""

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
        """With numbers that are in none of them."""
        owners = np.concatenate((self.owner, owner))
        first = np.concatenate((self.first, numbers))
        last = np.concatenate((self.last, numbers))
        order = np.lexsort((first, owners))
        return NumberRanges(owners[order], first[order], last[order])

    def merged(self) -> NumberRanges:
        """With those that touch made one."""
        if not len(self):
            return self
        begins = np.ones(len(self), np.bool_)
        begins[1:] = (self.owner[1:] != self.owner[:-1]) | (self.first[1:] != self.last[:-1] + 1)
        ends = np.append(begins[1:], True)
        return NumberRanges(self.owner[begins], self.first[begins], self.last[ends])

    def at_or_below(self, owner: Ints, number: Ints) -> Ints:
        """For each number the place of its owner's last run that begins there or below; else -1."""
        count = len(self)
        if not count or not len(owner):
            return np.full(len(owner), -1, np.int64)
        is_asked = np.repeat(np.array([False, True]), (count, len(owner)))
        owners = np.concatenate((self.owner, owner))
        order = np.lexsort((is_asked, np.concatenate((self.first, number)), owners))
        place = np.maximum.accumulate(np.where(order < count, order, -1))
        found = np.empty(len(order), np.int64)
        found[order] = place
        found = found[count:]
        is_own = (found >= 0) & (self.owner[np.maximum(found, 0)] == owner)
        return np.where(is_own, found, -1)

    def hold(self, owner: Ints, number: Ints) -> Flags:
        at = self.at_or_below(owner, number)
        if not len(self):
            return np.zeros(len(owner), np.bool_)
        return (at >= 0) & (self.last[at] >= number)

    def first_missing(self, owner: Ints, number: Ints) -> Ints:
        """The lowest number from there on that is in no run. The runs must be merged."""
        at = self.at_or_below(owner, number)
        if not len(self):
            return number
        found: Ints = np.where((at >= 0) & (self.last[at] >= number), self.last[at] + 1, number)
        return found

    def holes(self, base: Ints) -> tuple[Ints, Flags]:
        """Before each run, where the numbers from its owner's base on begin that are in none, and
        whether there are any; every run begins at its owner's base or above. They must be merged.
        """
        start = base[self.owner]
        same = np.flatnonzero(self.owner[1:] == self.owner[:-1])
        start[same + 1] = self.last[same] + 1
        return start, self.first > start

    def filled_from(self, base: Ints) -> Ints:
        """For each owner, by number, the lowest one from its base on that is in no run; every run
        begins at its owner's base or above."""
        if not len(self):
            return base
        size: Ints = self.last - self.first + 1
        before = np.cumsum(size) - size
        begins = np.searchsorted(self.owner, self.owner)  # where each owner's runs begin
        is_next = self.first - base[self.owner] == before - before[begins]
        found: Ints = base.copy()
        np.add.at(found, self.owner[is_next], size[is_next])
        return found
