"""What a leader knows of a producer on one partition, and what it makes of the next records.

Kafka's ProducerStateManager as a pure machine: the newest ranges of sequences of the current
epoch, five by default, and where the next one must begin. The broker has one answer for most of
what does not fit (OUT_OF_ORDER_SEQUENCE_NUMBER); here it is told apart what was certainly seen
before, what is certainly missing, and what nobody can tell. docs/audit.md has both side by side.

Sequences are numbers of a circle: 2^31 - 1 is followed by 0. Of two of them, the one that is less
than half a circle ahead comes later.

`producer_batch` decides the same for millions of records at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

RANGES_KEPT = 5
SEQUENCES = 2**31
# For numbers below 2^62 that never wrap: no two of them are half of this circle apart.
UNWRAPPED = 2**63
EPOCHS = 2**15
IDLE_MS = 86_400_000  # Kafka's producer.id.expiration.ms


class Verdict(Enum):
    """The values are what tables and metrics say."""

    APPENDED = "appended"
    # All of it was appended before, in this epoch.
    DUPLICATE = "duplicate"
    # It begins below what is next, and that it was seen is not proven.
    LATE = "late"
    # Something between the last sequence and this one never came.
    GAP = "gap"
    # A newer epoch of this producer wrote here.
    FENCED = "fenced"
    # The first of this producer, and it does not begin at 0.
    UNKNOWN_PRODUCER = "unknown_producer"


VERDICTS = tuple(Verdict)


class Range(NamedTuple):
    """Of sequences, both ends inclusive. `last` is below `first` where it wraps."""

    first: int
    last: int


class SequenceEvent(NamedTuple):
    """What a producer sends: a record batch's range, or one record's sequence twice."""

    epoch: int
    first: int
    last: int
    at_ms: int = 0


class ProducerState(NamedTuple):
    """`ranges` are the newest of this epoch, oldest first; none: a marker opened the epoch.

    `run` counts the sequences without a hole up to the last one. Everything among them was
    appended, so that a resend is recognised however many ranges ago it was: what Kafka forgets.
    """

    epoch: int
    ranges: tuple[Range, ...]
    run: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """`is_ordered`: a partition holds all records of its producers, in the order in which they
    were sent. Not so where one producer's sequence is spread over partitions: then the retained
    ranges alone prove that something was seen.

    `accepts`: verdicts after which the records count as written, beside `appended`. Kafka accepts
    an unknown producer. `sequences` is the size of the circle, `epochs` how many there may be.
    """

    ranges_max: int = RANGES_KEPT
    is_ordered: bool = True
    accepts: frozenset[Verdict] = frozenset({Verdict.UNKNOWN_PRODUCER})
    sequences: int = SEQUENCES
    epochs: int = EPOCHS

    def __post_init__(self) -> None:
        odd = self.accepts - {Verdict.APPENDED, Verdict.GAP, Verdict.UNKNOWN_PRODUCER}
        is_circle = 2 <= self.sequences <= 2**32 or self.sequences == UNWRAPPED
        if odd or self.ranges_max < 1 or not is_circle or not 1 <= self.epochs <= 2**62:
            raise ValueError(
                f"no rules: accepts={sorted(each.value for each in self.accepts)}, "
                f"ranges_max={self.ranges_max}, sequences={self.sequences}, epochs={self.epochs}"
            )

    @property
    def limits(self) -> Mapping[str, int]:
        """What the numbers of an event must be below."""
        top = min(self.sequences, UNWRAPPED // 2)
        return {"epoch": self.epochs, "first": top, "last": top}

    def writes(self, verdict: Verdict) -> bool:
        """Does the state move on?"""
        return verdict is Verdict.APPENDED or verdict in self.accepts


KAFKA = Rules()


def decide(state: ProducerState | None, event: SequenceEvent, rules: Rules = KAFKA) -> Verdict:
    """None: this producer is not known here."""
    require_valid(event, rules)
    if state is None:
        return Verdict.UNKNOWN_PRODUCER if event.first else Verdict.APPENDED
    if event.epoch < state.epoch:
        return Verdict.FENCED
    if event.epoch > state.epoch or not state.ranges:
        return Verdict.GAP if event.first else Verdict.APPENDED
    circle, last = rules.sequences, state.ranges[-1].last
    back = (last + 1 - event.first) % circle
    if back == 0:
        return Verdict.APPENDED
    if back > circle // 2:
        return Verdict.GAP
    count = (event.last - event.first) % circle + 1
    if count > back:
        return Verdict.LATE  # a part of it is new
    if any(_is_inside(event, kept, circle) for kept in state.ranges):
        return Verdict.DUPLICATE
    is_seen = rules.is_ordered and back <= state.run
    return Verdict.DUPLICATE if is_seen else Verdict.LATE


def after(
    state: ProducerState | None, event: SequenceEvent, verdict: Verdict, rules: Rules = KAFKA
) -> ProducerState | None:
    """The state behind it: as it was, unless the records count as written."""
    if not rules.writes(verdict):
        return state
    added = Range(event.first, event.last)
    count = (event.last - event.first) % rules.sequences + 1
    if state is None or event.epoch != state.epoch or not state.ranges:
        return ProducerState(event.epoch, (added,), _capped(count, rules), event.at_ms)
    run = state.run + count if verdict is Verdict.APPENDED else count
    ranges = (*state.ranges, added)[-rules.ranges_max :]
    return ProducerState(event.epoch, ranges, _capped(run, rules), event.at_ms)


def marked(state: ProducerState | None, epoch: int, at_ms: int = 0) -> ProducerState:
    """A transaction's marker ends it. Under TV2 its epoch is already the next one's, so whoever
    comes late with the old one is fenced."""
    if state is None or epoch > state.epoch:
        return ProducerState(epoch, (), 0, at_ms)
    return state._replace(at_ms=at_ms) if epoch == state.epoch else state


def is_expired(state: ProducerState, now_ms: int, idle_ms: int = IDLE_MS) -> bool:
    """Nothing came for so long: the producer is forgotten, and unknown when it comes back."""
    return now_ms - state.at_ms >= idle_ms


def require_valid(event: SequenceEvent, rules: Rules) -> None:
    for name, limit in rules.limits.items():
        value = getattr(event, name)
        if not 0 <= value < limit:
            raise ValueError(f"{name} is {value}: expected 0 to {limit - 1}")


def _is_inside(event: SequenceEvent, kept: Range, circle: int) -> bool:
    size = (kept.last - kept.first) % circle
    begins = (event.first - kept.first) % circle
    ends = (event.last - kept.first) % circle
    return begins <= ends <= size


def _capped(run: int, rules: Rules) -> int:
    """Half a circle is as far back as a sequence can lie."""
    return min(run, rules.sequences // 2)


# What the broker answers where it knows the producer, by verdict: its error codes. 0 with the
# offset of the first copy is how it acknowledges a duplicate.
KAFKA_ANSWERS: Mapping[Verdict, frozenset[int]] = {
    Verdict.APPENDED: frozenset({0}),
    Verdict.DUPLICATE: frozenset({0, 45}),
    Verdict.LATE: frozenset({45}),
    Verdict.GAP: frozenset({45}),
    Verdict.FENCED: frozenset({47}),
    Verdict.UNKNOWN_PRODUCER: frozenset({0, 45}),
}
