"""How are a micro-batch's offset ranges divided among tasks?"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from eos.kafka.api import TopicPartition
from eos.kafka.range_fetcher import Range

# If a cut would leave less than a twentieth of a task's share at a partition's start or end, move
# it there: a small piece would cost a request and an Arrow batch of its own.
_SNAP = 20


def divide(
    ranges: Mapping[TopicPartition, tuple[int, int]], tasks: int, *, splits: bool
) -> list[list[Range]]:
    """Divide the offset ranges (start, end) of partitions among tasks. Return at most `tasks`
    lists, none of them empty.

    With `splits`, a partition may be read by several tasks, and all tasks get about the same number
    of offsets; earlier pieces are in earlier tasks. Without it, one task reads a partition's whole
    range, so the largest partition is the limit. The same arguments give the same result.
    """
    if tasks < 1:
        raise ValueError(f"{tasks} tasks")
    whole = [Range(tp, *ranges[tp]) for tp in sorted(ranges) if ranges[tp][0] < ranges[tp][1]]
    return _cut(whole, tasks) if splits else _packed(whole, tasks)


def _packed(whole: list[Range], tasks: int) -> list[list[Range]]:
    """Assign whole ranges, the largest first, each to the task with the fewest offsets so far."""
    found: list[list[Range]] = [[] for _ in range(min(tasks, len(whole)))]
    loads = [(0, number) for number in range(len(found))]
    for each in sorted(whole, key=lambda one: (one.start - one.end, one)):
        offsets, number = heapq.heappop(loads)
        found[number].append(each)
        heapq.heappush(loads, (offsets + each.end - each.start, number))
    return [sorted(each) for each in found]


def _cut(whole: list[Range], tasks: int) -> list[list[Range]]:
    """Cut the sequence of all ranges into equal shares, one per task."""
    total = sum(each.end - each.start for each in whole)
    found: list[list[Range]] = [[] for _ in range(tasks)]
    before = 0
    for each in whole:
        size = each.end - each.start
        for number, start, end in _shares(before, size, total, tasks):
            found[number].append(Range(each.partition, each.start + start, each.start + end))
        before += size
    return [each for each in found if each]


def _shares(before: int, size: int, total: int, tasks: int) -> Iterator[tuple[int, int, int]]:
    """Yield the pieces of one range as (task, start, end), relative to the range's start.

    `before` is the number of offsets in earlier ranges, `size` that of this range, `total` that of
    all ranges.
    """
    first, last = before * tasks // total, (before + size - 1) * tasks // total
    at = 0
    for number in range(first, last + 1):
        end = _snapped(-(-(number + 1) * total // tasks) - before, size, total // tasks)
        if end > at:
            yield number, at, end
        at = max(at, end)


def _snapped(cut: int, size: int, share: int) -> int:
    if cut >= size:
        return size
    if cut * _SNAP < share:
        return 0
    return size if (size - cut) * _SNAP < share else cut
