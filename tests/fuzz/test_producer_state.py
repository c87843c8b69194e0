"""The machine against an oracle that remembers everything, and its vectorised form against it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.errors import examples

from eos.producers import batch
from eos.producers.batch import decide_all
from eos.producers.state import (
    UNWRAPPED,
    VERDICTS,
    ProducerState,
    Range,
    Rules,
    SequenceEvent,
    Verdict,
    after,
    decide,
    marked,
)
from eos.producers.table import SCHEMA

GAP, UNKNOWN = Verdict.GAP, Verdict.UNKNOWN_PRODUCER
CIRCLE = 2**31
# So close to each other that most are near what is next, on both sides of the wrap.
numbers = st.integers(-14, 14).map(lambda n: n % CIRCLE)
sizes = st.sampled_from([1, 1, 1, 2, 3])
accepts = st.sampled_from(
    [frozenset(), frozenset({UNKNOWN}), frozenset({GAP}), frozenset({GAP, UNKNOWN})]
)
rules = st.builds(Rules, st.integers(1, 5), st.booleans(), accepts)


class Seen:
    """The oracle: every range that was appended in the current epoch, as plain numbers that don't
    wrap, without any bound. A sequence stands for the number that is nearest to what is next."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.epoch: int | None = None
        self.ranges: list[tuple[int, int]] = []

    def decide(self, one: SequenceEvent) -> Verdict:
        verdict = self._verdict(one)
        if verdict is Verdict.APPENDED or verdict in self.rules.accepts:
            first, last = self._plain(one)
            if one.epoch != self.epoch or not self.ranges:
                self.ranges = []
            self.epoch = one.epoch
            self.ranges.append((first, last))
        return verdict

    def _plain(self, one: SequenceEvent) -> tuple[int, int]:
        if one.epoch != self.epoch or not self.ranges:
            first = one.first
        else:
            first = min(
                (one.first + lap * CIRCLE for lap in range(-2, 3)),
                key=lambda n: (abs(n - self._next), n),
            )
        return first, first + (one.last - one.first) % CIRCLE

    @property
    def _next(self) -> int:
        return self.ranges[-1][1] + 1

    def _verdict(self, one: SequenceEvent) -> Verdict:
        if self.epoch is None:
            return UNKNOWN if one.first else Verdict.APPENDED
        if one.epoch < self.epoch:
            return Verdict.FENCED
        if one.epoch > self.epoch or not self.ranges:
            return GAP if one.first else Verdict.APPENDED
        first, last = self._plain(one)
        if first >= self._next:
            return Verdict.APPENDED if first == self._next else GAP
        kept = self.ranges[-self.rules.ranges_max :]
        if any(a <= first and last <= b for a, b in kept):
            return Verdict.DUPLICATE
        seen = {n for a, b in self.ranges for n in range(a, b + 1)}
        is_whole = all(n in seen for n in range(first, self._next))
        proves = self.rules.is_ordered and last < self._next and is_whole
        return Verdict.DUPLICATE if proves else Verdict.LATE


@st.composite
def sent(draw, most=14, producers=1):
    """(producer, partition, event): mostly what follows, sent once or twice, now and then not."""
    found, ends = [], {}
    for _ in range(draw(st.integers(0, most))):
        key = draw(st.integers(0, producers - 1)), draw(st.integers(0, min(1, producers - 1)))
        epoch, following = ends.get(key, (draw(st.integers(0, 2)), draw(numbers)))
        what = draw(st.sampled_from(["next", "next", "next", "again", "any", "epoch"]))
        if what == "epoch":
            epoch, following = max(0, epoch + draw(st.integers(-1, 1))), draw(numbers | st.just(0))
        first = following
        if what == "again" and found:
            first = found[-1][2].first
        if what == "any":
            first = draw(numbers)
        last = (first + draw(sizes) - 1) % CIRCLE
        ends[key] = epoch, (last + 1) % CIRCLE
        found.append((*key, SequenceEvent(epoch, first, last, at_ms=len(found))))
    return found


def one_by_one(found, given_rules, states=None):
    states = dict(states or {})
    verdicts = []
    for producer, partition, one in found:
        before = states.get((producer, partition))
        verdicts.append(decide(before, one, given_rules))
        states[producer, partition] = after(before, one, verdicts[-1], given_rules)
    return verdicts, {key: state for key, state in states.items() if state is not None}


def table(found):
    return pa.table(
        {
            "producer": pa.array([2 * producer + at for producer, at, _ in found], pa.int32()),
            **{
                field: pa.array([getattr(one, field) for _, _, one in found], pa.int64())
                for field in SequenceEvent._fields
            },
        }
    )


def states_of(found: pa.Table):
    return {
        divmod(row["producer"], 2): ProducerState(
            row["epoch"],
            tuple(Range(*each) for each in zip(row["first"], row["last"], strict=True)),
            row["run"],
            row["at_ms"],
        )
        for row in found.to_pylist()
    }


@settings(max_examples=examples(90), deadline=None)
@given(sent(), rules)
def test_what_was_seen_decides(found, given_rules):
    oracle = Seen(given_rules)
    verdicts, _ = one_by_one(found, given_rules)
    assert verdicts == [oracle.decide(one) for _, _, one in found]
    for verdict in set(verdicts):
        event(verdict.value)


@settings(max_examples=examples(90), deadline=None)
@given(sent(most=30, producers=3), st.integers(0, 30), rules, st.sampled_from([4, 1 << 19]))
def test_a_table_of_events_gets_the_same_verdicts(found, cut, given_rules, rows_max):
    verdicts, states = one_by_one(found, given_rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "_ROWS_MAX", rows_max)
        head = decide_all(table(found[:cut]), rules=given_rules)
        tail = decide_all(table(found[cut:]), head.states, given_rules)
    codes = [*head.codes, *tail.codes]
    assert [VERDICTS[code] for code in codes] == verdicts
    assert states_of(tail.states) == states


@settings(max_examples=examples(75), deadline=None)
@given(st.data(), st.sampled_from([2, 3, 8, 21, 64]), accepts, st.booleans())
def test_sequences_that_jump_around_the_circle_get_the_same_verdicts(data, circle, accepted, order):
    given_rules = Rules(2, order, accepted, circle)
    one = st.builds(
        lambda epoch, first, size: SequenceEvent(epoch, first, (first + size - 1) % circle),
        st.integers(0, 1),
        st.integers(0, circle - 1),
        st.integers(1, max(1, circle // 4)),
    )
    found = data.draw(st.lists(st.tuples(st.integers(0, 1), st.just(0), one), max_size=20))
    verdicts, states = one_by_one(found, given_rules)
    decided = decide_all(table(found), rules=given_rules)
    assert [VERDICTS[code] for code in decided.codes] == verdicts
    assert states_of(decided.states) == states


LARGE = st.sampled_from([0, 2**31, 2**38, 2**40, 2**61, 2**62 - 20])


@settings(max_examples=examples(75), deadline=None)
@given(st.data(), accepts, st.booleans())
def test_numbers_of_64_bits_that_never_wrap_get_the_same_verdicts(data, accepted, order):
    given_rules = Rules(2, order, accepted, UNWRAPPED, 2**62)
    one = st.builds(
        lambda epoch, near, far, size: SequenceEvent(epoch, far + near, far + near + size - 1),
        st.sampled_from([0, 1, 2**62 - 1]),
        st.integers(0, 12),
        LARGE,
        st.integers(1, 4),
    )
    found = data.draw(st.lists(st.tuples(st.integers(0, 1), st.just(0), one), max_size=20))
    verdicts, states = one_by_one(found, given_rules)
    decided = decide_all(table(found), rules=given_rules)
    assert [VERDICTS[code] for code in decided.codes] == verdicts
    assert states_of(decided.states) == states


@settings(max_examples=examples(30), deadline=None)
@given(sent(most=12), st.integers(0, 3), rules)
def test_a_marker_opens_its_epoch(found, epoch, given_rules):
    state = marked(None, epoch)
    row = {"producer": 0, "epoch": epoch, "first": [], "last": [], "run": 0, "at_ms": 0}
    known = pa.Table.from_pylist([row], SCHEMA)
    verdicts, states = one_by_one(found, given_rules, {(0, 0): state})
    decided = decide_all(table(found), known, given_rules)
    assert [VERDICTS[code] for code in decided.codes] == verdicts
    assert states_of(decided.states) == states
    if verdicts and found[0][2].epoch == epoch:
        assert verdicts[0] is (GAP if found[0][2].first else Verdict.APPENDED)
