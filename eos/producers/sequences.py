"""Which sequence ranges of an epoch are appended? Computed for all producers at once, without a
loop over records.

A segment is the sequence of ranges that one producer sent to one partition in one epoch. The
appended ranges form a chain. After an appended range, the next one in the chain is the first later
range that begins where it ended. If gaps are accepted, it may begin above that. Searches in sorted
arrays find these pointers. Doubling them marks the chain from a segment's head, in log n steps for
n records.

All numbers here are distances from a segment's anchor, so plain comparisons are right. The caller
excludes segments that reach around a quarter of the circle of sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Chain:
    """The sequence ranges of all segments, ordered by segment, then by arrival.

    `is_kept`: the range is from the previous state, so it was appended before. A segment begins
    with a kept range or with the row that opened its epoch. `is_start`: where the chain begins, at
    the last kept range or at that row.
    """

    segment: Ints
    first: Ints
    last: Ints
    is_kept: Flags
    is_start: Flags

    def __len__(self) -> int:
        return len(self.segment)


def applied(chain: Chain, *, accepts_gaps: bool) -> Flags:
    """Return for each range whether it is appended, so that it changes the producer's state."""
    done = chain.is_kept | chain.is_start
    follows = np.ones(len(chain), np.bool_)
    follows[1:] = chain.first[1:] == chain.last[:-1] + 1
    irregular = ~follows & ~done
    if not irregular.any():
        return np.ones(len(chain), np.bool_)
    # Search only the segments with a range that is not next in sequence; most have none.
    number: Ints = np.concatenate(([0], np.cumsum(np.diff(chain.segment) != 0)))
    is_irregular = np.zeros(int(number[-1]) + 1, np.bool_)
    is_irregular[number[irregular]] = True
    searched = is_irregular[number]
    found: Flags = ~searched
    at = np.flatnonzero(searched)
    segment, first, last = number[at], chain.first[at], chain.last[at]
    next_at = (_at_or_above if accepts_gaps else _exactly)(segment, first, last)
    found[at] = _marked(next_at, chain.is_start[at], segment) | chain.is_kept[at]
    return found


def _exactly(segment: Ints, first: Ints, last: Ints) -> Ints:
    """Return for each range the index of the first later range of its segment that begins right
    after its end; the number of ranges if there is none."""
    count = len(first)
    low = min(int(first.min()), int(last.min()))
    span = max(int(first.max()), int(last.max())) - low + 3
    start_keys = segment * span + (first - low)
    next_keys = segment * span + (last + 1 - low)
    values, place = np.unique(start_keys, return_inverse=True)
    index = np.arange(count, dtype=np.int64)
    order = np.lexsort((index, place))
    ranked = place[order] * count + index[order]
    value = np.minimum(np.searchsorted(values, next_keys), len(values) - 1)
    at = np.searchsorted(ranked, value * count + index, side="right")
    at_most = np.minimum(at, count - 1)
    is_there = (values[value] == next_keys) & (at < count) & (place[order[at_most]] == value)
    return np.where(is_there, order[at_most], count)


def _at_or_above(segment: Ints, first: Ints, last: Ints) -> Ints:
    """Return for each range the index of the next one in its segment that begins above its end,
    with or without a gap. Without one, the index is the number of ranges."""
    count = len(first)
    levels = [first]
    while 2 ** len(levels) <= count:
        half, before = 2 ** (len(levels) - 1), levels[-1]
        levels.append(np.maximum(before[:-half], before[half:]))
    end = np.searchsorted(segment, segment, side="right")
    at = np.arange(1, count + 1, dtype=np.int64)
    for level in range(len(levels) - 1, -1, -1):
        size, highest = 2**level, levels[level]
        fits = at + size <= end
        passes = fits & (highest[np.where(fits, at, 0)] <= last)
        at = np.where(passes, at + size, at)
    return np.where(at < end, at, count)


def _marked(next_at: Ints, starts: Flags, segment: Ints) -> Flags:
    """Return which elements are reached by following the pointers `next_at` from the starts."""
    count = len(next_at)
    longest = int(np.bincount(segment).max())
    jumps = [np.append(next_at, count)]
    while 2 ** len(jumps) < longest:
        jumps.append(jumps[-1][jumps[-1]])
    reached = np.append(starts, False)
    for jump in reversed(jumps):
        reached[jump[np.flatnonzero(reached)]] = True
    return reached[:count]
