"""How are a micro-batch's offset ranges divided among tasks?"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from eos.kafka.api import TopicPartition
from eos.kafka.range_fetcher import Range

# A cut this close to a partition's start or end, as a part of a task's share, is moved there: a
# small piece would cost a request and an Arrow batch of its own.
_SNAP = 20  # a twentieth


def divide(
    ranges: Mapping[TopicPartition, tuple[int, int]], tasks: int, *, splits: bool
) -> list[list[Range]]:
    """Return the ranges of each task: at most `tasks` lists, none of them empty.

    Guarantees: the tasks have about the same number of offsets. Of two pieces of a partition, the
    earlier one is in an earlier task. The result depends on nothing but the arguments. Without
    `splits`, one task reads a partition's whole range, so the largest partition is the limit.
    """
    if tasks < 1:
        raise ValueError(f"{tasks} tasks")
    whole = [Range(tp, *ranges[tp]) for tp in sorted(ranges) if ranges[tp][0] < ranges[tp][1]]
    return _cut(whole, tasks) if splits else _packed(whole, tasks)


def _packed(whole: list[Range], tasks: int) -> list[list[Range]]:
    """Give the largest range to the task that has least, then the next one."""
    found: list[list[Range]] = [[] for _ in range(min(tasks, len(whole)))]
    loads = [(0, number) for number in range(len(found))]
    for each in sorted(whole, key=lambda one: (one.start - one.end, one)):
        offsets, number = heapq.heappop(loads)
        found[number].append(each)
        heapq.heappush(loads, (offsets + each.end - each.start, number))
    return [sorted(each) for each in found]


def _cut(whole: list[Range], tasks: int) -> list[list[Range]]:
    """Cut the sequence of all ranges into equal shares."""
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
    """Yield the task, start and end of each piece of a range of this size."""
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
