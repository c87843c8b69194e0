"""Offset ranges that are divided among tasks: each offset once, in order, and in equal shares."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.errors import examples

from eos.kafka.api import TopicPartition
from eos.kafka.range_fetcher import Range
from eos.read.ranges import divide

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 40))
SIZES = st.one_of(st.integers(0, 30), st.integers(0, 2_000_000))
RANGES = st.dictionaries(
    PARTITIONS, st.tuples(st.integers(0, 10_000), SIZES).map(lambda at: (at[0], sum(at)))
)


@settings(max_examples=examples(500))
@given(RANGES, st.integers(1, 20), st.booleans())
def test_each_offset_is_in_one_task_and_pieces_are_in_order(
    ranges: dict[TopicPartition, tuple[int, int]], tasks: int, splits: bool
) -> None:
    found = divide(ranges, tasks, splits=splits)
    assert len(found) <= tasks
    assert all(found)
    pieces: dict[TopicPartition, list[Range]] = {}
    for each in (piece for task in found for piece in task):
        assert each.start < each.end
        pieces.setdefault(each.partition, []).append(each)
    assert pieces.keys() == {tp for tp, (start, end) in ranges.items() if start < end}
    for tp, of in pieces.items():
        assert splits or len(of) == 1
        assert [of[0].start, of[-1].end] == list(ranges[tp])
        assert all(one.end == next_.start for one, next_ in itertools.pairwise(of))
    assert found == divide(dict(reversed(ranges.items())), tasks, splits=splits)


def offsets(task: list[Range]) -> int:
    return sum(each.end - each.start for each in task)


@settings(max_examples=examples(300))
@given(RANGES, st.integers(1, 20))
def test_shares_are_equal(ranges: dict[TopicPartition, tuple[int, int]], tasks: int) -> None:
    total = sum(end - start for start, end in ranges.values())
    largest = max((end - start for start, end in ranges.values()), default=0)
    cut = [offsets(task) for task in divide(ranges, tasks, splits=True)]
    assert sum(cut) == total
    assert all(each <= total / tasks * 1.1 + 1 for each in cut)
    packed = [offsets(task) for task in divide(ranges, tasks, splits=False)]
    assert sum(packed) == total
    # The bound of this greedy way: the task that ends last got its last range when it had least.
    assert all(each <= total / tasks + largest for each in packed)


def test_without_splits_large_partitions_are_spread() -> None:
    sizes = {TopicPartition("t", n): (0, size) for n, size in enumerate((5, 90, 10, 100, 10, 80))}
    found = divide(sizes, 3, splits=False)
    assert sorted(map(offsets, found)) == [95, 100, 100]
    assert all(task == sorted(task) for task in found)


def test_a_cut_leaves_no_sliver() -> None:
    sizes = {TopicPartition("t", 0): (0, 1_010), TopicPartition("t", 1): (0, 990)}
    assert [len(task) for task in divide(sizes, 2, splits=True)] == [1, 1]


def test_there_is_nothing_to_divide() -> None:
    assert divide({TopicPartition("t", 0): (5, 5)}, 4, splits=True) == []
    assert divide({}, 4, splits=False) == []
    with pytest.raises(ValueError, match="0 tasks"):
        divide({}, 0, splits=False)
