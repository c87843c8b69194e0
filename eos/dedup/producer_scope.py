"""Verdicts on records if a producer's numbers span several partitions.

`scalar_producer_scope` is the specification, with the rules and a worked example. This module
decides all records of a shard (a sixteenth of the producers, by hash) at once, with numpy.

The state of an epoch has the accepted numbers (`runs`) and the lowest number that is awaited
(`base`). Missing numbers from `begin` to `base` are not awaited, but accepted if they arrive.
`begin` is less than `base` only if the producer's first known record was in the middle of its
sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eos.dedup.number_ranges import NumberRanges, group_starts
from eos.producers.sequences import Flags, Ints
from eos.producers.state import UNWRAPPED, VERDICTS

EPOCHS_KEPT = 4  # newest epochs per producer; records of older epochs are late
_SMALL = 1 << 16  # if all epochs are below this limit, each epoch is used as its own rank
_APPENDED, _DUPLICATE, _LATE, _GAP, _FENCED, _UNKNOWN = range(len(VERDICTS))


@dataclass(frozen=True, slots=True)
class ScopeRules:
    """Dedup rules of `scope: producer`. Numbers wrap to 0 at `sequences`; UNWRAPPED: never.

    A number `window` or more above the lowest missing number is a gap."""

    window: int
    accepts_gap: bool = False
    sequences: int = UNWRAPPED

    @property
    def wraps(self) -> bool:
        return self.sequences != UNWRAPPED


@dataclass(frozen=True, slots=True)
class Stamps:
    """Arrays with one element per record. Records without a valid stamp are left out.

    `producer` and `place` are indexes; `place` numbers partitions by topic and partition."""

    producer: Ints
    epoch: Ints
    number: Ints
    place: Ints
    offset: Ints


@dataclass(frozen=True, slots=True)
class Epochs:
    """Dedup states, one for each producer and epoch, ordered by both.

    - `runs` has the accepted numbers. The owner of a run is the index of its state.
    - The states of the producer's epochs up to `forgotten` were removed; -1 if none was.
    - Fence n: in the partition `fence_place[n]`, the newest epoch of a producer is the one of the
      state with the index `fence_owner[n]`.
    """

    producer: Ints
    epoch: Ints
    begin: Ints
    base: Ints
    forgotten: Ints
    runs: NumberRanges
    fence_owner: Ints
    fence_place: Ints

    @classmethod
    def none(cls) -> Epochs:
        nothing, runs = np.zeros(0, np.int64), NumberRanges.none()
        return cls(nothing, nothing, nothing, nothing, nothing, runs, nothing, nothing)


@dataclass(frozen=True, slots=True)
class ScopeVerdicts:
    """Verdicts on the records of one shard, as indexes into VERDICTS (`codes`).

    `missing` has, for each gap, the lowest number that is missing. `epochs` has the states after
    the records. `moved` has the indexes of the producers whose state changed."""

    codes: npt.NDArray[np.int8]
    missing: Ints
    epochs: Epochs
    moved: Ints


@dataclass(frozen=True, slots=True)
class _Groups:
    """Pairs of producer and epoch ("groups") that have a state or a record, ordered by both."""

    producer: Ints
    epoch: Ints
    known: Ints  # index of the group's state; -1 if it has none
    forgotten: Ints
    is_over: Flags  # the epoch's state was removed, so all its records are late
    is_new: Flags  # the epoch is newer than all known ones, so it must begin at 0

    @classmethod
    def of(cls, stamps: Stamps, known: Epochs, counts: Flags) -> tuple[_Groups, Ints, Ints]:
        """Return the groups, and the index of the group of each state and of each record.

        A group is a pair of producer and epoch. `counts` marks the records that may make an epoch
        known: all records, or those that are known not to be fenced.
        """
        producer = np.concatenate((known.producer, stamps.producer))
        epoch = np.concatenate((known.epoch, stamps.epoch))
        _, ranks = _ranked(epoch)
        keys = producer * (int(ranks.max(initial=0)) + 1) + ranks
        # Same result as numpy.unique, in half the time if keys are nearly in order.
        order = np.argsort(keys, kind="stable")
        is_first = group_starts(keys[order])
        at, group = order[is_first], np.empty(len(keys), np.int64)
        group[order] = np.cumsum(is_first) - 1
        producer, epoch = producer[at], epoch[at]
        of_known, of_row = np.split(group, [len(known.epoch)])
        place = np.full(len(at), -1, np.int64)
        place[of_known] = np.arange(len(of_known))
        forgotten, newest, lowest = np.full((3, int(producer.max(initial=-1)) + 1), -1, np.int64)
        forgotten[known.producer] = known.forgotten
        newest[known.producer] = known.epoch  # ordered, so the newest epoch is assigned last
        has_arrived = np.zeros(len(at), np.bool_)
        has_arrived[of_row[counts]] = True
        arrived = np.flatnonzero(has_arrived)[::-1]
        lowest[producer[arrived]] = epoch[arrived]
        bound = np.where(newest >= 0, newest, lowest)[producer]
        is_over = (place < 0) & (epoch <= forgotten[producer])
        is_new = (place < 0) & ~is_over & (epoch > bound)
        groups = cls(producer, epoch, place, forgotten[producer], is_over, is_new)
        return groups, of_known, of_row

    def was(self, values: Ints) -> Ints:
        """Return each group's element of `values`, which has one per known state; 0 for others."""
        found = np.zeros(len(self.known), np.int64)
        is_known = self.known >= 0
        found[is_known] = values[self.known[is_known]]
        return found


def decide(stamps: Stamps, known: Epochs, rules: ScopeRules) -> ScopeVerdicts:
    """Return each record's verdict with `scope: producer`, and the states after all records."""
    if not len(stamps.epoch):
        nothing = np.zeros(0, np.int64)
        return ScopeVerdicts(nothing.astype(np.int8), nothing, known, nothing)
    stamps = replace(stamps, number=_unwrapped(stamps, known, rules))
    grouped = _Groups.of(stamps, known, np.ones(len(stamps.epoch), np.bool_))
    fences = _Fences.of(stamps, known, rules, grouped[0], grouped[2])
    if fences.is_fenced.any():
        grouped = _Groups.of(stamps, known, ~fences.is_fenced)
    groups, of_known, group = grouped
    order = np.lexsort((stamps.offset, stamps.place, stamps.number, group))
    order = order[~fences.is_fenced[order]]
    result = _ScopeResult.of(stamps.number[order], group[order], groups, of_known, known, rules)
    codes = np.full(len(order) + int(fences.is_fenced.sum()), _FENCED, np.int8)
    codes[order] = result.codes
    epochs = result.epochs(groups, fences)
    has_moved = np.zeros(int(groups.producer.max(initial=-1)) + 1, np.bool_)
    has_moved[groups.producer[result.has_moved]] = True
    has_moved[fences.raised] = True
    missing = np.zeros(len(codes), np.int64)
    missing[order] = result.missing
    return ScopeVerdicts(codes, missing, epochs, np.flatnonzero(has_moved))


def _ranked(epochs: Ints) -> tuple[Ints, Ints]:
    """Return ascending values, and for each epoch the index of its own. Small epochs are their own
    index. Others have up to 62 bits: only a rank fits into a sort key beside the producer."""
    top = int(epochs.max(initial=0))
    if top < _SMALL and int(epochs.min(initial=0)) >= 0:  # nearly always true, and needs no sort
        return np.arange(top + 1), epochs
    values, ranks = np.unique(epochs, return_inverse=True)
    return values, ranks.astype(np.int64)


def _unwrapped(stamps: Stamps, known: Epochs, rules: ScopeRules) -> Ints:
    """Return numbers that continue to grow where sequences wrap to 0."""
    count, modulus = len(stamps.number), rules.sequences
    if not rules.wraps or not count:
        return stamps.number
    groups, _, group = _Groups.of(stamps, known, np.ones(count, np.bool_))
    order = np.lexsort((stamps.offset, stamps.place, group))
    group, place, number = group[order], stamps.place[order], stamps.number[order]
    is_group, is_first = group_starts(group), group_starts(group, place)
    start = groups.was(known.base)
    is_unknown = (groups.known < 0) & ~groups.is_new
    start[group[is_group]] += np.where(is_unknown, 1, 0)[group[is_group]] * number[is_group]
    before = np.where(is_first, start[group], np.append(0, number[:-1]))
    steps = (number - before + modulus // 2) % modulus - modulus // 2
    sums = np.cumsum(steps)
    at = np.maximum.accumulate(np.where(is_first, np.arange(count), 0))
    found = np.empty(count, np.int64)
    found[order] = start[group] + sums - (sums - steps)[at]
    return found


@dataclass(frozen=True, slots=True)
class _Fences:
    """The newest epoch of each producer in each partition.

    `is_fenced` marks the records that follow a newer epoch of their producer.
    """

    is_fenced: Flags
    producer: Ints
    place: Ints
    epoch: Ints
    raised: Ints  # producers with a newer epoch than before in some partition

    @classmethod
    def of(
        cls, stamps: Stamps, known: Epochs, rules: ScopeRules, groups: _Groups, group: Ints
    ) -> _Fences:
        """Return the fences after these records. `groups` counts fenced records, too."""
        lowest = np.full(len(groups.epoch), UNWRAPPED - 1, np.int64)
        np.minimum.at(lowest, group, stamps.number)
        # A rejected record fences no epoch, or one corrupt stamp would fence all other records.
        is_accepted = rules.accepts_gap | ~groups.is_new | (lowest < rules.window)
        can_fence = (groups.known >= 0) | (~groups.is_over & is_accepted)
        owner = known.fence_owner
        producer = np.concatenate((known.producer[owner], stamps.producer))
        place = np.concatenate((known.fence_place, stamps.place))
        epochs = np.concatenate((known.epoch[owner], stamps.epoch))
        values, ranks = _ranked(epochs)
        counts = np.concatenate((np.ones(len(owner), np.bool_), can_fence[group]))
        fence = np.where(counts, ranks + 1, 0)  # 0: fences nothing
        offset = np.concatenate((np.full(len(owner), -1, np.int64), stamps.offset))
        order = np.lexsort((offset, place, producer))
        is_first = group_starts(producer[order], place[order])
        lift = np.cumsum(is_first) * (len(values) + 2)
        newest = np.maximum.accumulate(fence[order] + lift) - lift
        is_fenced = np.zeros(len(order), np.bool_)
        is_fenced[order] = ranks[order] + 1 < newest
        is_last = np.append(is_first[1:], True)
        last, first = order[is_last], order[is_first]
        top = newest[is_last]
        # Epoch 0 fences nothing, because no epoch is older.
        has_fence = (top > 0) & (values[np.maximum(top - 1, 0)] > 0)
        is_raised = has_fence & ~((first < len(owner)) & (fence[first] == top))
        return cls(
            is_fenced[len(owner) :],
            producer[last[has_fence]],
            place[last[has_fence]],
            values[top[has_fence] - 1],
            producer[last[is_raised]],
        )


@dataclass(frozen=True, slots=True)
class _ScopeResult:
    """Each record's verdict code, and each group's state after all records of a micro-batch."""

    codes: npt.NDArray[np.int8]
    missing: Ints  # the lowest missing number, for records with the verdict `gap` only
    begin: Ints
    base: Ints
    runs: NumberRanges
    has_moved: Flags

    @classmethod
    def of(
        cls,
        numbers: Ints,
        owners: Ints,
        groups: _Groups,
        of_known: Ints,
        known: Epochs,
        rules: ScopeRules,
    ) -> _ScopeResult:
        """Return the result for records that are ordered by group and number."""
        is_first = group_starts(owners, numbers)
        owner, number = owners[is_first], numbers[is_first]
        begin, base, is_first_number = _begins(owner, number, groups, known, rules)
        runs = NumberRanges(of_known[known.runs.owner], known.runs.first, known.runs.last)
        codes = np.full(len(number), _APPENDED, np.int8)
        codes[is_first_number | (number < base[owner])] = _UNKNOWN
        codes[groups.is_over[owner] | (number < begin[owner])] = _LATE
        top = np.full(len(base), -UNWRAPPED)
        top[runs.owner] = runs.last  # ordered: the highest run is assigned last
        aggregates = np.flatnonzero(number <= top[owner])
        codes[aggregates[runs.hold(owner[aggregates], number[aggregates])]] = _DUPLICATE
        is_above = np.isin(codes, (_APPENDED, _UNKNOWN)) & (number >= base[owner])
        at = np.flatnonzero(is_above)
        is_gap, lacks = _gaps(runs, owner[at], number[at], base, rules)
        gaps = at[is_gap]
        codes[gaps] = _GAP
        missing = np.zeros(len(number), np.int64)
        missing[gaps] = lacks[is_gap]
        writes = (_APPENDED, _UNKNOWN, *([_GAP] if rules.accepts_gap else []))
        is_accepted = np.isin(codes, writes)
        merged = runs.ordered_with(owner[is_accepted], number[is_accepted]).merged()
        has_gap, has_moved = np.zeros((2, len(base)), np.bool_)
        has_gap[owner[gaps]] = rules.accepts_gap
        has_moved[owner[is_accepted]] = True
        begin, base, merged = _settled(merged, begin, base, has_gap, rules)
        row = np.cumsum(is_first) - 1
        every = codes[row]
        every[~is_first & np.isin(every, writes)] = _DUPLICATE
        return cls(every, missing[row], begin, base, merged, has_moved)

    def epochs(self, groups: _Groups, fences: _Fences) -> Epochs:
        """Return the states of each producer's EPOCHS_KEPT newest epochs."""
        present = np.flatnonzero((groups.known >= 0) | self.has_moved)
        producer = groups.producer[present]
        until = np.searchsorted(producer, producer, side="right")
        is_kept = until - np.arange(len(present)) <= EPOCHS_KEPT
        forgotten = groups.forgotten[present]
        over = np.full(int(producer.max(initial=-1)) + 1, -1, np.int64)
        over[producer[~is_kept]] = groups.epoch[present[~is_kept]]  # ordered: the newest wins
        forgotten = np.maximum(forgotten, over[producer])[is_kept]
        kept = present[is_kept]
        place = np.full(len(groups.epoch), -1, np.int64)
        place[kept] = np.arange(len(kept))
        runs = self.runs.chosen(place[self.runs.owner] >= 0)
        runs = NumberRanges(place[runs.owner], runs.first, runs.last)
        producer, epoch = groups.producer[kept], groups.epoch[kept]
        owner = NumberRanges(producer, epoch, epoch).at_or_below(fences.producer, fences.epoch)
        has = (owner >= 0) & (epoch[owner] == fences.epoch) if len(kept) else owner >= 0
        return Epochs(
            producer,
            epoch,
            self.begin[kept],
            self.base[kept],
            forgotten,
            runs,
            owner[has],
            fences.place[has],
        )


def _begins(
    owner: Ints, number: Ints, groups: _Groups, known: Epochs, rules: ScopeRules
) -> tuple[Ints, Ints, Flags]:
    """Return each group's `begin` and `base` before these records. Also return which numbers are
    the first number of an unknown producer and not 0."""
    begin, base = groups.was(known.begin), groups.was(known.base)
    is_unknown = (groups.known < 0) & ~groups.is_new & ~groups.is_over
    is_first_number = group_starts(owner) & is_unknown[owner] & (number != 0)
    first_numbers = number[is_first_number]
    base[owner[is_first_number]] = first_numbers
    lowest = first_numbers - rules.window
    begin[owner[is_first_number]] = lowest if rules.wraps else np.maximum(lowest, 0)
    return begin, base, is_first_number


def _gaps(
    runs: NumberRanges, owner: Ints, number: Ints, base: Ints, rules: ScopeRules
) -> tuple[Flags, Ints]:
    """Return which numbers are gaps, and the lowest missing number below each of them.

    All numbers must be at the `base` of their group or above."""
    above = runs.chosen(runs.first >= base[runs.owner])
    every = above.ordered_with(owner, number)
    if not rules.accepts_gap:
        lowest = every.filled_from(base)[owner]
        return number >= lowest + rules.window, lowest
    # Accepting a number abandons each hole that begins `window` or more below it. The number is a
    # gap if it abandons a hole that no lower number abandons.
    every = every.merged()
    start, is_hole = every.holes(base)
    holes = NumberRanges(every.owner, start, start).chosen(is_hole)
    given_up = holes.at_or_below(owner, number - rules.window)
    is_gap: Flags = (given_up >= 0) & group_starts(given_up)
    if not len(holes):
        return is_gap, number
    # The lowest missing number is in the first hole that no lower number abandons.
    before = np.append(-1, given_up[:-1])[: len(owner)]
    is_own = (before >= 0) & (holes.owner[np.maximum(before, 0)] == owner)
    lowest = np.where(is_own, before + 1, np.searchsorted(holes.owner, owner))
    return is_gap, holes.first[np.minimum(lowest, len(holes) - 1)]


def _settled(
    runs: NumberRanges, begin: Ints, base: Ints, has_gap: Flags, rules: ScopeRules
) -> tuple[Ints, Ints, NumberRanges]:
    """Return the `begin`, `base` and `runs` to store, without runs that end below `begin - 1`."""
    top = base - 1
    top[runs.owner] = runs.last  # ordered: the highest run is assigned last
    is_contiguous = (begin == base) | has_gap
    above = NumberRanges(runs.owner, np.maximum(runs.first, base[runs.owner]), runs.last)
    above = above.chosen(above.first <= above.last)
    start, is_hole = above.holes(base)
    base = runs.first_missing(np.arange(len(base)), base)
    if rules.accepts_gap:
        passed = is_hole & (start <= top[above.owner] - rules.window)
        np.maximum.at(base, above.owner[passed], above.last[passed] + 1)
    parts = np.flatnonzero(~is_contiguous)
    lowest = np.maximum(begin, base - rules.window)[parts]
    begin = base.copy()
    begin[parts] = runs.first_missing(parts, lowest)
    first = runs.first
    if rules.wraps:  # numbers more than half of `sequences` back look like newer ones
        first = np.maximum(first, top[runs.owner] + 1 - rules.sequences // 2)
    is_needed = (runs.last >= begin[runs.owner] - 1) & (first <= runs.last)
    return begin, base, NumberRanges(runs.owner, first, runs.last).chosen(is_needed)
