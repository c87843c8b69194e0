"""The table of ranges against an oracle that counts offsets one by one."""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.errors import raises

from eos.errors import PromiseBrokenError
from eos.kafka.api import TopicPartition
from eos.ledger.ranges import PlannedBatch, decide, require_same_topics, unknown
from eos.ledger.record import Position

A, B = TopicPartition("a", 0), TopicPartition("b", 7)
offsets = st.integers(0, 6)


def planned(partition: TopicPartition):
    """One partition: the ledger's end or none, the first record, Spark's range."""
    return st.tuples(
        st.just(partition), st.none() | offsets, offsets, offsets, offsets, st.booleans()
    )


def by_partition(partitions):
    """Spark's starts and ends, the ledger's ends, and the first records."""
    ends, starts, known, first = {}, {}, {}, {}
    for tp, ledger, earliest, one, other, is_new in partitions:
        ends[tp], first[tp] = max(one, other), earliest
        if not is_new:
            starts[tp] = min(one, other)
        if ledger is not None:
            known[tp] = ledger
    return starts, ends, known, first


def runs(step: PlannedBatch, decision) -> dict[TopicPartition, set[int]]:
    """What is left of Spark's range once rows below the floors are left out."""
    return {
        tp: {n for n in range(step.starts.get(tp, 0), end) if n >= decision.floors.get(tp, 0)}
        for tp, end in step.ends.items()
    }


def check_stop(stop: PromiseBrokenError, step: PlannedBatch, known, first) -> None:
    event(stop.code)
    where = TopicPartition(stop.fields["topic"], stop.fields["partition"])
    at, start = known.get(where), step.starts.get(where)
    right = {
        "unknown": at is None and start is not None and start != first[where],
        "hole": at is not None and start is not None and at < start,
        "beyond": at is not None and (start is None or at > step.ends[where]),
    }
    assert right[stop.code]
    assert f"{where.topic}-{where.partition}" in stop.message
    assert "eos recover p --" in stop.hint


@given(st.tuples(planned(A), planned(B)), st.booleans())
def test_nothing_is_lost_or_repeated_or_it_stops(partitions, is_same):
    starts, ends, known, first = by_partition(partitions)
    step = PlannedBatch("q", 4, starts, ends)
    position = Position(known, {}, "q" if is_same else "another", 4)
    try:
        decision = decide("p", position, step, {tp: first[tp] for tp in unknown(position, step)})
    except PromiseBrokenError as stop:
        check_stop(stop, step, known, first)
        at = TopicPartition(stop.fields["topic"], stop.fields["partition"])
        # A part of the same micro-batch may have committed the beginning of a new partition.
        assert not (is_same and at not in starts and known.get(at, 99) <= ends[at])
        return
    if is_same and known == ends:  # by its name: it may have no rows and still be done
        assert decision.is_done
        return
    for tp, rows in runs(step, decision).items():
        event("inside" if tp in decision.floors else "whole")
        if tp in known:
            committed = set(range(known[tp]))
            assert not rows & committed, "repeated"
            assert committed | rows == set(range(ends[tp])), "lost"
        else:
            assert rows == set(range(starts.get(tp, 0), ends[tp]))
        assert decision.starts[tp] == max(known.get(tp, 0), starts.get(tp, 0))
    assert decision.is_done == (known == ends)


def test_the_name_alone_does_not_make_it_done():
    position = Position({A: 5}, {}, "q", 4)
    assert decide("p", position, PlannedBatch("q", 4, {A: 2}, {A: 5}), {}).is_done
    again = decide("p", position, PlannedBatch("q", 4, {A: 2}, {A: 9}), {})
    assert (again.is_done, again.starts, again.floors) == (False, {A: 5}, {A: 5})


def test_partitions_may_mix_done_inside_whole_and_new():
    c, d = TopicPartition("c", 0), TopicPartition("d", 0)
    position = Position({A: 5, B: 3, c: 2}, {}, "q", 4)
    step = PlannedBatch("q", 5, {A: 2, B: 0, c: 2, d: 1}, {A: 5, B: 4, c: 9, d: 3})
    decision = decide("p", position, step, {d: 1})
    assert decision.floors == {A: 5, B: 3}
    assert decision.starts == {A: 5, B: 3, c: 2, d: 1}
    assert not decision.is_done


def test_the_checks_that_stop_come_before_any_decision():
    position = Position({A: 5, B: 3}, {}, "q", 4)
    with raises("hole", PromiseBrokenError) as caught:
        decide("p", position, PlannedBatch("q", 5, {A: 0, B: 4}, {A: 5, B: 6}), {})
    assert "b-7" in caught.value.message


def test_a_topic_made_anew_is_another_topic():
    position = Position({A: 5}, {"a": "old"})
    require_same_topics("p", position, {"a": "old", "b": "new"})
    with raises("recreated", PromiseBrokenError) as caught:
        require_same_topics("p", position, {"a": "new"})
    assert "its id is new, but old in the ledger" in caught.value.message
    assert "--forget-topic a" in caught.value.hint


def check_inside(stop: PromiseBrokenError, step: PlannedBatch, known) -> None:
    where = TopicPartition(stop.fields["topic"], stop.fields["partition"])
    assert step.starts.get(where, 0) < known[where] <= step.ends[where]
    assert "--accept-state-loss" in stop.hint


@given(st.tuples(planned(A), planned(B)), st.integers(3, 5), st.booleans())
def test_a_stateful_micro_batch_is_whole_or_done_by_its_name(partitions, last, is_same):
    """Never in part, since its state has counted all of it; and not done by its ends alone: one
    without any new record may emit, too."""
    starts, ends, known, first = by_partition(partitions)
    step = PlannedBatch("q", 4, starts, ends, is_stateful=True)
    position = Position(known, {}, "q" if is_same else "another", last)
    is_that = is_same and last == 4 and known == ends
    try:
        decision = decide("p", position, step, {tp: first[tp] for tp in unknown(position, step)})
    except PromiseBrokenError as stop:
        assert not is_that
        event(stop.code)
        if stop.code == "inside_state":
            check_inside(stop, step, known)
        return
    assert decision.is_done == is_that
    assert decision.floors == {}
    if not is_that:
        event("no data" if starts == ends else "data")
        assert all(known.get(tp, start) == start for tp, start in starts.items())


@pytest.mark.parametrize(("ledger", "case"), [(5, "hole"), (30, "beyond")])
def test_the_way_past_a_checkpoint_with_state_names_the_loss(ledger, case):
    tp = TopicPartition("t", 0)
    for is_stateful in (False, True):
        step = PlannedBatch("q", 7, {tp: 10}, {tp: 20}, is_stateful=is_stateful)
        with pytest.raises(PromiseBrokenError) as caught:
            decide("p", Position({tp: ledger}, {}), step, {})
        assert caught.value.code == case
        assert ("--accept-state-loss then, and every total" in caught.value.hint) is is_stateful
