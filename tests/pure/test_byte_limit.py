"""`max_bytes`: where a transaction ends, by samples of the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from eos.deadline import Deadline
from eos.kafka.api import TopicPartition
from eos.kafka.batch_samples import BatchSample
from eos.read.byte_limit import OFFSETS_APART, SECTIONS_MAX, ByteLimit

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


@dataclass
class Log:
    """Partitions' record batches: (records, bytes), or (1, None) for a transaction marker."""

    batches: Mapping[TopicPartition, Sequence[tuple[int, int | None]]]
    asked: list[tuple[TopicPartition, int]] = field(default_factory=list)

    def sample(self, tp: TopicPartition, offset: int, deadline: Deadline) -> BatchSample | None:
        assert not deadline.has_passed
        self.asked.append((tp, offset))
        ends = self.ends(tp)
        at = bisect_right(ends, offset)
        if at == len(ends):
            return None
        count, size = self.batches[tp][at]
        return BatchSample(ends[at] - count, ends[at], size or 78, size is None)

    def ends(self, tp: TopicPartition) -> list[int]:
        return list(accumulate(count for count, _ in self.batches[tp]))

    def spans(self) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: (0, self.ends(tp)[-1]) for tp in self.batches}

    def bytes_of(self, tp: TopicPartition, start: int, end: int) -> int:
        """Bytes of the record batches that a reader of these offsets fetches."""
        return sum(
            size or 78
            for (count, size), stop in zip(self.batches[tp], self.ends(tp), strict=True)
            if start < stop and stop - count < end
        )


def divided(log: Log, bytes_max: int) -> list[dict[TopicPartition, tuple[int, int]]]:
    """Divide all of the log, and return what each transaction reads."""
    left, found = log.spans(), []
    while left:
        ends = ByteLimit(bytes_max, log).ends(left)
        assert ends.keys() == left.keys()
        found.append({tp: (left[tp][0], end) for tp, end in ends.items()})
        assert all(start < end <= left[tp][1] for tp, (start, end) in found[-1].items())
        left = {tp: (ends[tp], end) for tp, (_, end) in left.items() if ends[tp] < end}
    return found


def sizes(log: Log, parts: list[dict[TopicPartition, tuple[int, int]]]) -> list[int]:
    return [sum(log.bytes_of(tp, *span) for tp, span in part.items()) for part in parts]


def test_what_is_within_the_limit_is_one_transaction_and_two_samples():
    log = Log({ONE: [(100, 1000)] * 5})
    assert ByteLimit(5000, log).ends({ONE: (100, 500)}) == {ONE: 500}
    assert sorted(log.asked) == [(ONE, 100), (ONE, 499)]


def test_a_large_range_has_no_more_samples_than_a_few():
    log = Log({ONE: [(100, 1000)] * 10_000})
    ByteLimit(2**40, log).ends(log.spans())
    assert len(log.asked) == SECTIONS_MAX + 1


def test_records_that_grow_are_noticed_before_they_are_read():
    grown = [(100, 10_000)] * 200 + [(1, 10_000)] * 2_000
    log = Log({ONE: grown, TWO: grown})
    parts = divided(log, 1_000_000)
    found = sizes(log, parts)
    assert max(found) <= 1_000_000
    assert sum(found) == 2 * 2_200 * 10_000  # no record batch is in two transactions
    assert len(found) < 2 * sum(found) / 1_000_000


def test_a_transaction_marker_at_the_end_does_not_hide_large_records():
    log = Log({ONE: [*[(100, 10_000)] * 10, *[(1, 100_000), (1, None)] * 50]})
    assert log.spans()[ONE][1] < OFFSETS_APART  # so the range has two samples
    assert max(sizes(log, divided(log, 500_000))) <= 500_000


def test_a_record_batch_above_the_limit_is_read_alone():
    log = Log({ONE: [(10, 5_000)] * 4})
    assert divided(log, 1_000) == [{ONE: (start, start + 10)} for start in (0, 10, 20, 30)]


def test_offsets_without_a_record_batch_have_no_bytes():
    assert ByteLimit(1, Log({ONE: []})).ends({ONE: (5, 900)}) == {ONE: 900}


batches = st.lists(
    st.tuples(st.integers(1, 500), st.integers(70, 20_000)) | st.just((1, None)),
    min_size=1,
    max_size=60,
)


@given(st.dictionaries(st.sampled_from([ONE, TWO]), batches, min_size=1), st.integers(1, 100_000))
def test_each_offset_is_in_one_transaction_whatever_the_log_has(found, bytes_max):
    log = Log(found)
    parts = divided(log, bytes_max)
    for tp, (start, end) in log.spans().items():
        spans = [part[tp] for part in parts if tp in part]
        assert [span[0] for span in spans] == [start, *(span[1] for span in spans[:-1])]
        assert spans[-1][1] == end


@given(st.integers(70, 300), st.integers(1, 60), st.integers(1, 60))
def test_a_log_whose_records_only_grow_stays_below_the_limit(size, small, large):
    log = Log({ONE: [(100, 100 * size)] * small + [(100, 5_000 * size)] * large})
    limit = 20_000 * size
    assert max(sizes(log, divided(log, limit))) <= limit
