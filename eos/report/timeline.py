"""The timeline of the report: attempts grouped into a limited number of time intervals.

Attempts are read once and not kept, so the length of the whole history is unknown at first. The
first intervals are short. When there are too many, neighbours are merged into longer ones. Each
width divides the next one, so whole intervals are merged and no attempt is counted again.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from eos.audit.history import Transaction
from eos.kafka.api import TopicPartition
from eos.report.units import ms_between

INTERVALS_MAX = 240
_SECOND, _HOUR, _DAY = 1000, 3_600_000, 86_400_000
WIDTHS_MS = (
    *(100, 500, _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND),
    *(60 * _SECOND, 300 * _SECOND, 600 * _SECOND, 1800 * _SECOND),
    *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 7 * _DAY, 28 * _DAY, 336 * _DAY, 3360 * _DAY),
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_STEP = math.log(1.04)  # width of a histogram bucket: 4 %, so a quantile is exact to 2 %


class Times:
    """Histogram of the durations of attempts. Its size does not grow with their number."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.longest_ms = 0.0

    def add(self, ms: float) -> None:
        self._counts[round(math.log(max(ms, 0.1)) / _STEP)] += 1
        self.longest_ms = max(self.longest_ms, ms)

    def join(self, other: Times) -> None:
        self._counts.update(other._counts)
        self.longest_ms = max(self.longest_ms, other.longest_ms)

    def at(self, share: float) -> float:
        """Return a quantile in milliseconds: for `share` 0.95, 95 % of attempts took at most that.

        Return 0 if there are no attempts."""
        left = share * sum(self._counts.values())
        for place in sorted(self._counts):
            left -= self._counts[place]
            if left <= 0:
                return min(math.exp(place * _STEP), self.longest_ms)
        return 0.0

    def __bool__(self) -> bool:
        return bool(self._counts)


@dataclass(slots=True)
class OffsetSpan:
    """The offsets of one partition that the pipeline read or wrote in a period.

    There are `count` of them, the lowest is `first` and the highest `last`. Between these may be
    offsets that other clients wrote, or that this pipeline did not read.
    """

    first: int
    last: int
    count: int = 0
    transactions: int = 0
    bytes: int = 0

    def join(self, other: OffsetSpan) -> None:
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self.count += other.count
        self.transactions += other.transactions
        self.bytes += other.bytes


Spans = dict[TopicPartition, OffsetSpan]


def join(spans: Spans, others: Spans, *, is_new: bool = False) -> None:
    """Add the offset spans of `others` to `spans`, in place.

    Two spans of one partition become one, from the lower first offset to the higher last one, with
    the sums of their counts. With `is_new` the caller does not use `others` any more, so its spans
    are stored without a copy.
    """
    for tp, span in others.items():
        if tp in spans:
            spans[tp].join(span)
        else:
            spans[tp] = span if is_new else replace(span)


def read_by(each: Transaction) -> Spans:
    return {
        tp: OffsetSpan(start, end - 1, end - start, 1)
        for tp, (start, end) in each.sources.items()
        if end > start
    }


def written_by(each: Transaction) -> Spans:
    return {
        tp: OffsetSpan(
            row["offset_first"], row["offset_last"], row["records"], 1, row["bytes"] or 0
        )
        for tp, row in each.targets.items()
    }


# The outcome of an attempt, as the page shows it.
COMMITTED, REDONE, ABORTED, FENCED = KINDS = ("committed", "redone", "aborted", "fenced")


def is_try(each: Transaction) -> bool:
    """Return whether the report counts a transaction as an attempt.

    It counts attempts of micro-batches, and every aborted transaction. It does not count committed
    start, stop, refresh and recovery records.
    """
    return each.is_attempt or not each.is_committed


def kind_of(each: Transaction) -> str:
    """Return the outcome of an attempt, one of KINDS.

    `redone` means that it was committed, after failed attempts of the same micro-batch.
    """
    if each.is_fenced:
        return FENCED
    if not each.is_committed:
        return ABORTED
    return REDONE if (each.attempt or 1) > 1 else COMMITTED


# The steps of a micro-batch. Records of older releases, and the last micro-batch of each run, have
# no durations of the four steps of a commit: these are then part of the last one.
RUN, REDO, LEDGER, OFFSETS, END, TABLES, BETWEEN = STEPS = (
    "read, transform, write",
    "attempts that failed",
    "ledger record",
    "group offsets",
    "EndTxn",
    "Delta tables",
    "wait, other",
)
_OF_PREVIOUS = {"ledger": LEDGER, "offsets": OFFSETS, "end": END, "tables": TABLES}


@dataclass(slots=True)
class Interval:
    """The attempts and events that ended in one interval.

    `position` has the source offsets after its last commit."""

    counts: Counter[str] = field(default_factory=Counter)  # attempts by KINDS, others by their kind
    step_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    position: dict[TopicPartition, int] = field(default_factory=dict)
    lag_ms: int | None = None  # the longest one
    offsets_read: int = 0
    records_written: int = 0
    times: Times = field(default_factory=Times)
    sources: Spans = field(default_factory=dict)
    targets: Spans = field(default_factory=dict)

    def add(self, each: Transaction, before: datetime | None) -> None:
        """Add a transaction. `before` is the time at which the previous one ended, if known."""
        self.counts[kind_of(each) if is_try(each) else each.kind] += 1
        if each.is_committed:
            self.position.update({tp: end for tp, (_, end) in each.sources.items()})
        if is_try(each):
            step = RUN if each.is_committed else REDO
            self.step_ms[step] += ms_between(each.begun_at, each.ended_at)
            self.step_ms[BETWEEN] += ms_between(before, each.begun_at)
        for name, ms in each.previous_ms.items():  # they are a part of the time between
            self.step_ms[_OF_PREVIOUS.get(name, BETWEEN)] += ms
            self.step_ms[BETWEEN] -= ms
        self._note_lag(each.lag_ms)
        if not (each.is_attempt and each.is_committed):
            return
        self.offsets_read += each.offsets_in
        self.records_written += each.records_out
        if each.begun_at is not None and each.ended_at is not None:
            self.times.add(ms_between(each.begun_at, each.ended_at))
        join(self.sources, read_by(each), is_new=True)
        join(self.targets, written_by(each), is_new=True)

    def _note_lag(self, lag_ms: int | None) -> None:
        if lag_ms is not None:
            self.lag_ms = max(lag_ms, self.lag_ms or 0)

    @property
    def committed(self) -> int:
        """Return the number of micro-batches that were committed."""
        return self.counts[COMMITTED] + self.counts[REDONE]

    @property
    def failed(self) -> int:
        """Return the number of attempts that were aborted or fenced."""
        return self.counts[ABORTED] + self.counts[FENCED]

    def step_averages_ms(self) -> dict[str, float]:
        """Return the duration of each step, for one committed micro-batch."""
        return {step: max(0.0, ms) / max(1, self.committed) for step, ms in self.step_ms.items()}

    def join(self, other: Interval) -> None:
        """Add a later interval."""
        self.counts.update(other.counts)
        self.position.update(other.position)
        for step, ms in other.step_ms.items():
            self.step_ms[step] += ms
        self._note_lag(other.lag_ms)
        self.offsets_read += other.offsets_read
        self.records_written += other.records_written
        self.times.join(other.times)
        join(self.sources, other.sources)
        join(self.targets, other.targets)


class Timeline:
    """The intervals from the first transaction to the last, at most `INTERVALS_MAX`.

    They all have the same length. `intervals` has only those with a transaction, by their number.
    """

    def __init__(self) -> None:
        self._width = 0  # index of the present interval length in WIDTHS_MS
        self.intervals: dict[int, Interval] = {}
        self._last = _EPOCH

    @property
    def width_ms(self) -> int:
        return WIDTHS_MS[self._width]

    @property
    def first(self) -> int:
        return min(self.intervals, default=0)

    @property
    def length(self) -> int:
        return max(self.intervals) - self.first + 1 if self.intervals else 0

    def start_of(self, number: int) -> datetime:
        return _EPOCH + timedelta(milliseconds=number * self.width_ms)

    def place_of(self, at: datetime) -> int:
        return (at - _EPOCH) // timedelta(milliseconds=self.width_ms)

    def add(self, each: Transaction) -> datetime:
        """Add a transaction to the interval in which it ended, and return that time.

        If its end is unknown, the time of its begin is used. If that is unknown, too, it is the
        time of the previously added transaction.
        """
        before = self._last if self.intervals else None
        self._last = at = each.ended_at or each.begun_at or self._last
        place = self.place_of(at)
        is_new = place not in self.intervals
        self.intervals.setdefault(place, Interval()).add(each, before)
        while is_new and self.length > INTERVALS_MAX and self._width + 1 < len(WIDTHS_MS):
            self._widen()
        return at

    def _widen(self) -> None:
        before = self.width_ms
        self._width += 1
        factor = self.width_ms // before
        intervals: dict[int, Interval] = {}
        for number, interval in sorted(self.intervals.items()):
            place = number // factor
            if place in intervals:
                intervals[place].join(interval)
            else:
                intervals[place] = interval
        self.intervals = intervals
