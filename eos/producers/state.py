"""Is a producer's record new, a duplicate, or does it follow a gap? By the rules of a partition's
leader.

This is Kafka's ProducerStateManager as pure functions. A producer's state has the newest ranges of
sequences of its current epoch, five by default. They determine which sequence must follow. The
broker has one error for most other sequences (OUT_OF_ORDER_SEQUENCE_NUMBER). Here the verdict is
more precise: the record was certainly seen, records before it are certainly missing, or neither is
certain. docs/audit.md compares both.

Sequences are numbers on a circle: 2^31 - 1 is followed by 0. Of two sequences, the one that is less
than half a circle ahead is the later one.

`batch` computes the same verdicts for millions of records at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

RANGES_KEPT = 5
SEQUENCES = 2**31
# The circle size for numbers below 2^62, which never wrap: no two of them are half a circle apart.
UNWRAPPED = 2**63
EPOCHS = 2**15
IDLE_MS = 86_400_000  # Kafka's producer.id.expiration.ms


class Verdict(Enum):
    """The result of validating one event (a record or record batch). Tables and metrics use the
    values."""

    APPENDED = "appended"
    # All of its sequences were appended before, in this epoch.
    DUPLICATE = "duplicate"
    # It begins below the next sequence, but it is not certain that all of it was seen.
    LATE = "late"
    # Records between the last sequence and this one are missing.
    GAP = "gap"
    # A newer epoch of this producer has written to this partition.
    FENCED = "fenced"
    # The first record of this producer, with a sequence other than 0.
    UNKNOWN_PRODUCER = "unknown_producer"


VERDICTS = tuple(Verdict)


class Range(NamedTuple):
    """A range of sequences, both ends inclusive. `last` is below `first` if the range wraps."""

    first: int
    last: int


class SequenceEvent(NamedTuple):
    """The range of sequences in a record batch of a producer. For a single record, `first` and
    `last` are equal."""

    epoch: int
    first: int
    last: int
    at_ms: int = 0


class ProducerState(NamedTuple):
    """What is known of one producer on one partition: its epoch and the newest ranges of sequences.

    `ranges` are the newest of this epoch, oldest first; empty if a marker opened the epoch. `run`
    counts the consecutive sequences without a hole that end with the last one. All of them were
    appended, so a resend is recognized however old it is. Kafka does not keep this count.
    """

    epoch: int
    ranges: tuple[Range, ...]
    run: int
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which events are accepted; the defaults are Kafka's.

    - `ranges_max`: how many ranges a state keeps.
    - `is_ordered`: a partition has all records of its producers, in the order of sending. False if
      the sequences of one producer are spread over partitions. Then only the retained ranges prove
      that a record was seen.
    - `accepts`: verdicts that count as written, next to `appended`. Kafka accepts an unknown
      producer.
    - `sequences`: the size of the circle.
    - `epochs`: the number of possible epochs.
    """

    ranges_max: int = RANGES_KEPT
    is_ordered: bool = True
    accepts: frozenset[Verdict] = frozenset({Verdict.UNKNOWN_PRODUCER})
    sequences: int = SEQUENCES
    epochs: int = EPOCHS

    def __post_init__(self) -> None:
        unsupported = self.accepts - {Verdict.APPENDED, Verdict.GAP, Verdict.UNKNOWN_PRODUCER}
        is_circle = 2 <= self.sequences <= 2**32 or self.sequences == UNWRAPPED
        if unsupported or self.ranges_max < 1 or not is_circle or not 1 <= self.epochs <= 2**62:
            raise ValueError(
                f"invalid rules: accepts={sorted(each.value for each in self.accepts)}, "
                f"ranges_max={self.ranges_max}, sequences={self.sequences}, epochs={self.epochs}"
            )

    @property
    def limits(self) -> Mapping[str, int]:
        """Return the exclusive upper bounds for the numbers of an event, by field name."""
        top = min(self.sequences, UNWRAPPED // 2)
        return {"epoch": self.epochs, "first": top, "last": top}

    def writes(self, verdict: Verdict) -> bool:
        """Return whether an event with this verdict changes the state."""
        return verdict is Verdict.APPENDED or verdict in self.accepts


KAFKA = Rules()


def decide(state: ProducerState | None, event: SequenceEvent, rules: Rules = KAFKA) -> Verdict:
    """Return the verdict on the event by the producer's state. `state` is None if the producer is
    unknown on this partition."""
    require_valid(event, rules)
    if state is None:
        return Verdict.UNKNOWN_PRODUCER if event.first else Verdict.APPENDED
    if event.epoch < state.epoch:
        return Verdict.FENCED
    if event.epoch > state.epoch or not state.ranges:
        return Verdict.GAP if event.first else Verdict.APPENDED
    modulus, last = rules.sequences, state.ranges[-1].last
    back = (last + 1 - event.first) % modulus
    if back == 0:
        return Verdict.APPENDED
    if back > modulus // 2:
        return Verdict.GAP
    count = (event.last - event.first) % modulus + 1
    if count > back:
        return Verdict.LATE  # a part of it is new
    if any(_is_inside(event, kept, modulus) for kept in state.ranges):
        return Verdict.DUPLICATE
    is_seen = rules.is_ordered and back <= state.run
    return Verdict.DUPLICATE if is_seen else Verdict.LATE


def after(
    state: ProducerState | None, event: SequenceEvent, verdict: Verdict, rules: Rules = KAFKA
) -> ProducerState | None:
    """Return the producer's state after the event. An event that does not count as written leaves
    it unchanged."""
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
    """Return the producer's state after a transaction marker. Under TV2 the marker already has the
    next epoch, so late records of the old epoch are fenced."""
    if state is None or epoch > state.epoch:
        return ProducerState(epoch, (), 0, at_ms)
    return state._replace(at_ms=at_ms) if epoch == state.epoch else state


def is_expired(state: ProducerState, now_ms: int, idle_ms: int = IDLE_MS) -> bool:
    """Return whether the producer wrote nothing for `idle_ms`, after which the broker forgets
    it."""
    return now_ms - state.at_ms >= idle_ms


def require_valid(event: SequenceEvent, rules: Rules) -> None:
    top = min(rules.sequences, UNWRAPPED // 2)
    if 0 <= event.epoch < rules.epochs and 0 <= event.first < top and 0 <= event.last < top:
        return  # without the names, which cost more than the comparison
    for name, limit in rules.limits.items():
        value = getattr(event, name)
        if not 0 <= value < limit:
            raise ValueError(f"{name} is {value}: expected 0 to {limit - 1}")


def _is_inside(event: SequenceEvent, kept: Range, modulus: int) -> bool:
    size = (kept.last - kept.first) % modulus
    start = (event.first - kept.first) % modulus
    ends = (event.last - kept.first) % modulus
    return start <= ends <= size


def _capped(run: int, rules: Rules) -> int:
    """Return the run, at most half a circle: an earlier sequence can't lie further back."""
    return min(run, rules.sequences // 2)
