"""Each row of the table of verdicts, the wrap, epochs and expiry; docs/audit.md says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from support.producer_answers import KAFKA_ANSWERS

from eos.producers.batch import decide_all
from eos.producers.state import (
    IDLE_MS,
    KAFKA,
    UNWRAPPED,
    ProducerState,
    Range,
    Rules,
    SequenceEvent,
    Verdict,
    after,
    decide,
    is_expired,
    marked,
)
from eos.producers.table import States

TOP = 2**31 - 1
DOCS = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def sent(*ranges, epoch=3, rules=KAFKA):
    state = None
    for first, last in ranges:
        one = SequenceEvent(epoch, first, last)
        state = after(state, one, decide(state, one, rules), rules)
    return state


SEVEN = [(n * 10, n * 10 + 9) for n in range(7)]


@pytest.mark.parametrize(
    ("ranges", "event", "verdict"),
    [
        (SEVEN, SequenceEvent(3, 70, 74), "appended"),
        (SEVEN, SequenceEvent(3, 30, 39), "duplicate"),  # an exact range
        (SEVEN, SequenceEvent(3, 33, 33), "duplicate"),  # inside a retained one
        (SEVEN, SequenceEvent(3, 38, 41), "duplicate"),  # across two of them
        (SEVEN, SequenceEvent(3, 0, 9), "duplicate"),  # below those retained
        (SEVEN, SequenceEvent(3, 68, 72), "late"),  # a part is new
        (SEVEN, SequenceEvent(3, 71, 71), "gap"),
        (SEVEN, SequenceEvent(2, 70, 70), "fenced"),
        (SEVEN, SequenceEvent(2, 0, 0), "fenced"),
        (SEVEN, SequenceEvent(4, 0, 5), "appended"),
        (SEVEN, SequenceEvent(4, 70, 75), "gap"),
        ([], SequenceEvent(9, 0, 0), "appended"),
        ([], SequenceEvent(9, 1, 1), "unknown_producer"),
        ([(5, 6)], SequenceEvent(3, 7, 7), "appended"),
        ([(5, 6)], SequenceEvent(3, 4, 4), "late"),  # it began above: nobody knows
        ([(TOP - 1, TOP)], SequenceEvent(3, 0, 2), "appended"),
        ([(TOP - 1, TOP)], SequenceEvent(3, 1, 2), "gap"),
        ([(TOP - 1, 3)], SequenceEvent(3, 4, 4), "appended"),
        ([(TOP - 1, 3)], SequenceEvent(3, TOP, 1), "duplicate"),
    ],
)
def test_a_verdict(ranges, event, verdict):
    assert decide(sent(*ranges), event).value == verdict


def test_below_what_is_retained_nothing_is_proven_where_a_sequence_is_spread_over_partitions():
    spread = Rules(is_ordered=False)
    assert decide(sent(*SEVEN), SequenceEvent(3, 20, 29), spread) is Verdict.DUPLICATE
    assert decide(sent(*SEVEN), SequenceEvent(3, 0, 9), spread) is Verdict.LATE


def test_how_many_ranges_are_retained_can_be_chosen():
    for kept in (1, 5, 7):
        spread = Rules(kept, is_ordered=False)
        state = sent(*SEVEN, rules=spread)
        found = [decide(state, SequenceEvent(3, *each), spread).value for each in SEVEN]
        assert found == ["late"] * (7 - kept) + ["duplicate"] * kept


def test_what_is_refused_changes_nothing_and_an_accepted_gap_is_remembered_as_a_hole():
    state = sent((0, 2))
    assert after(state, SequenceEvent(3, 5, 6), Verdict.GAP) is state
    accepts = Rules(accepts=frozenset({Verdict.GAP}))
    state = after(state, SequenceEvent(3, 5, 6), Verdict.GAP, accepts)
    assert state is not None
    assert state.ranges == (Range(0, 2), Range(5, 6))
    assert decide(state, SequenceEvent(3, 1, 1), accepts) is Verdict.DUPLICATE
    assert decide(state, SequenceEvent(3, 3, 3), accepts) is Verdict.LATE  # it never came


def test_a_marker_of_the_next_epoch_forgets_the_ranges_and_one_of_the_same_does_not():
    state = sent((0, 9))
    assert marked(state, 3, 7) == state._replace(at_ms=7)
    assert marked(state, 2) is state
    opened = marked(state, 4)
    assert decide(opened, SequenceEvent(3, 10, 10)) is Verdict.FENCED
    assert decide(opened, SequenceEvent(4, 10, 10)) is Verdict.GAP
    assert decide(opened, SequenceEvent(4, 0, 0)) is Verdict.APPENDED


def test_an_idle_producer_is_forgotten():
    state = ProducerState(1, (Range(0, 0),), 1, at_ms=5)
    assert not is_expired(state, 5 + IDLE_MS - 1)
    assert is_expired(state, 5 + IDLE_MS)


@pytest.mark.parametrize(
    "event", [SequenceEvent(-1, 0, 0), SequenceEvent(2**15, 0, 0), SequenceEvent(0, -1, 0)]
)
def test_what_is_no_sequence_is_refused(event):
    with pytest.raises(ValueError, match="expected 0 to"):
        decide(None, event)
    values = {name: pa.array([value]) for name, value in event._asdict().items()}
    with pytest.raises(ValueError, match="expected 0 to"):
        decide_all(pa.table({"producer": [7], **values}))


def test_all_producers_that_jump_far_are_put_back_at_once(monkeypatch):
    """One copy of all states for each of them would take hours."""
    replaced, calls = States.replaced, []

    def counted(*asked):
        calls.append(asked)
        return replaced(*asked)

    monkeypatch.setattr(States, "replaced", counted)
    number = pa.array([0, 2**40] * 50)
    names = pa.array([n for n in range(50) for _ in range(2)])
    zeros = pa.array([0] * 100)
    columns = {"producer": names, "epoch": zeros, "at_ms": zeros}
    found = decide_all(
        pa.table({**columns, "first": number, "last": number}),
        rules=Rules(accepts=frozenset({Verdict.GAP}), sequences=UNWRAPPED),
    )
    assert found.codes.tolist() == [0, 3] * 50
    assert found.states.column("last").to_pylist() == [[0, 2**40]] * 50
    assert len(calls) == 1


def test_rows_of_nobody_are_refused():
    columns = {name: pa.array([0]) for name in SequenceEvent._fields}
    nobody = pa.table({"producer": pa.array([None], pa.int32()), **columns})
    with pytest.raises(ValueError, match="producer is null"):
        decide_all(nobody)


def test_the_docs_say_what_kafka_answers_to_each_verdict():
    rows = re.findall(r"^\| `([a-z_]+)` \| ([0-9, ]+) \|", DOCS, re.MULTILINE)
    told = {Verdict(verdict): {int(code) for code in codes.split(",")} for verdict, codes in rows}
    assert told == KAFKA_ANSWERS
