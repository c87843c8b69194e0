"""Micro-batches on a broker that loses what is said, in a process that is interrupted anywhere.

The oracle reads the log: whatever happened, each micro-batch's record is visible once, in order,
and a call that returned had its micro-batch in the log by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.micro_batch_world import (
    SIZE,
    TARGET,
    TRIES,
    FewTries,
    Interrupt,
    NoWait,
    World,
)

from eos.errors import (
    AttemptFailedError,
    EosError,
    FencedError,
    PromiseBrokenError,
    RecordRefusedError,
    UnavailableError,
)
from eos.faults import MOMENTS, POINTS
from eos.observe import events
from eos.testing.broker import Fault, Phase, Strike
from eos.testing.broker.kit import Tries, record_batch
from eos.transaction import micro_batch as module
from eos.transaction.coordinator import Coordinator
from eos.transaction.ledger_record import Ends
from eos.transaction.micro_batch import ATTEMPTS_MAX
from eos.transaction.port import Api, Identity
from eos.transaction.receipt import Receipt


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


# --- whatever happens ---------------------------------------------------------------------------

ERRORS = (AttemptFailedError, UnavailableError, RecordRefusedError, ValueError, KeyboardInterrupt)
ALL_POINTS = [f"{point}:{moment}" for point in POINTS for moment in MOMENTS]
faults = st.builds(
    Fault,
    st.sampled_from([Api.PRODUCE, Api.TXN_OFFSET_COMMIT, Api.INIT_PRODUCER_ID, *[Api.END_TXN] * 3]),
    st.sampled_from(list(Strike)),
    nth=st.integers(1, 4),
    code=st.sampled_from((-1, 7, 14, 15, 16, 19, 47, 48, 51, 120)),
    times=st.integers(1, 6),
)
# What befalls one call of a micro-batch; and whether Spark calls again in the same process.
trouble = st.tuples(
    st.lists(faults, max_size=2),
    st.sampled_from(["", "", *ALL_POINTS]),
    st.sampled_from(ERRORS),
    st.lists(st.sampled_from([None, *ERRORS]), max_size=2),
    st.booleans(),
)


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(trouble, max_size=6))
def test_each_micro_batch_is_visible_once_whatever_happens(troubles):
    world = World()
    number = 0
    for faults, point, kind, job_errors, is_same_process in troubles:
        for fault in faults:
            world.broker.arm(fault)
        world.crash = Interrupt(point, kind)
        errors = [error and error("the job") for error in job_errors]
        try:
            world.run(number, world.writes(number, *errors))
        except (EosError, ValueError, KeyboardInterrupt) as error:
            event(type(error).__name__)
        else:
            assert world.visible() == list(range(number + 1)), "returned: it is committed"
            number += 1
        world.broker.faults.disarm()
        world.crash = Interrupt()
        if world.broker.late and not is_same_process:
            world.broker.deliver_late()
        world.broker.late.clear()
        if not is_same_process:
            world.start()
    if world.coordinator.state.__class__.__name__ in {"Fenced", "Stopped"}:
        world.start()
    for _ in range(3):
        world.run(number)
        number += 1
    world.check(number)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, AttemptFailedError])
@pytest.mark.parametrize("point", ALL_POINTS)
def test_interrupted_at_a_point_the_next_call_goes_on_from_what_is_true(point, kind):
    world = World()
    world.run(0)
    world.crash = Interrupt(point, kind)
    with suppress(kind):
        world.run(1)
    assert world.crash.point in {"", "first_produce:before", "first_produce:after"}
    world.run(1)
    world.run(2)
    world.check(3)


# --- one thing at a time ------------------------------------------------------------------------


def test_a_micro_batch_is_one_transaction_with_ledger_and_offsets():
    world = World()
    world.run(0)
    world.check(1)
    body = world.ledger_body()
    assert body["attempt"]["starts"] == {"source": {"0": 0}}
    assert body["attempt"]["receipts"][0]["sequence_last"] == 0
    assert (body["query_id"], body["topic_ids"]) == ("q", {"source": "topic-id"})
    (told,) = world.of_kind(events.MicroBatchCommitted)
    assert (told.batch_id, told.attempt, told.records_in, told.records_out) == (0, 1, SIZE, 1)


@pytest.mark.parametrize("strike", [Strike.LOSE_ANSWER, Strike.LOSE_REQUEST])
def test_a_commit_in_doubt_is_settled_by_the_ledger(strike):
    world = World()
    is_committed = strike is Strike.LOSE_ANSWER
    world.broker.arm(Fault(Api.END_TXN, strike, times=TRIES))
    world.run(0)
    world.check(1)
    assert len(world.identities) == (1 if is_committed else 2)
    assert [e.will_redo for e in world.of_kind(events.AttemptFailed)] == [True] * (not is_committed)


def test_a_doubt_that_nobody_settles_is_never_aborted_and_settled_by_the_next_call():
    world = World()
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_ANSWER, times=TRIES))
    world.broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.LOSE_REQUEST, times=TRIES))
    with pytest.raises(UnavailableError):
        world.run(0)
    assert world.coordinator.is_in_doubt
    assert world.of_kind(events.AttemptFailed) == []
    assert world.broker.phase("id") is Phase.COMPLETE_COMMIT
    world.run(0)
    assert len(world.of_kind(events.MicroBatchSkipped)) == 1
    world.run(1)
    world.check(2)


def test_a_doubt_whose_ledger_can_not_be_read_is_settled_by_the_next_call(monkeypatch):
    world = World()
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=TRIES))

    def fails(*_args, **_kwargs):
        raise UnavailableError("ListOffsets had no answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger_wire, "list_offsets", fails)
        with pytest.raises(UnavailableError, match="ListOffsets"):
            world.run(0)
    assert world.coordinator.is_in_doubt
    world.run(0)
    world.check(1)


def test_a_failed_attempt_is_redone_under_a_new_epoch_at_most_three_times():
    world = World()
    world.run(0, world.writes(0, AttemptFailedError("once"), AttemptFailedError("twice")))
    world.check(1)
    assert len(set(world.identities)) == ATTEMPTS_MAX == 3
    last = AttemptFailedError("the last")
    with pytest.raises(AttemptFailedError) as caught:
        world.run(1, world.writes(1, AttemptFailedError("1"), AttemptFailedError("2"), last))
    assert caught.value is last
    assert len(set(world.identities)) == 6
    assert [e.will_redo for e in world.of_kind(events.AttemptFailed)] == [True] * 4 + [False]
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT
    assert world.visible() == [0]


def test_a_straggler_of_a_failed_attempt_is_refused():
    world = World()
    world.run(0, world.writes(0, AttemptFailedError("once")))
    blob = record_batch(world.identities[0], 1, [b"99"])
    assert world.port.produce("id", {TARGET: blob}, Tries(1))[TARGET].error == 47
    world.check(1)


@pytest.mark.parametrize(
    "error", [RecordRefusedError("too large"), UnavailableError("gone"), ValueError("a mistake")]
)
def test_what_a_redo_does_not_mend_raises_at_once_and_leaves_nothing_open(error):
    world = World()
    with pytest.raises(type(error)) as caught:
        world.run(0, world.writes(0, error))
    assert caught.value is error
    assert len(world.identities) == 1
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT
    (told,) = world.of_kind(events.AttemptFailed)
    assert str(error) in told.reason
    assert not told.will_redo


def test_an_abort_that_fails_hides_nothing_and_is_made_up_for():
    world = World()
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=TRIES))
    error = AttemptFailedError("the cause")
    with pytest.raises(AttemptFailedError) as caught:
        world.run(0, world.writes(0, error))
    assert caught.value is error
    assert not world.of_kind(events.AttemptFailed)[0].will_redo
    (told,) = world.of_kind(events.Warned)
    assert "could not be aborted: EndTxn had no answer" in told.message
    assert world.broker.phase("id") is Phase.ONGOING
    world.run(0)  # the attempt before is ended first, under its own epoch
    world.check(1)


def overtake(world: World) -> None:
    """A second copy of the pipeline starts."""
    Coordinator(world.port, "id", "group", 60_000, backoff=NoWait).fence(Tries(9))


def check_silent(world: World) -> None:
    """Called once more it raises again, and sends nothing."""
    for api in Api:
        world.broker.arm(Fault(api, Strike.LOSE_REQUEST))
    with pytest.raises(FencedError):
        world.run(0)
    assert world.broker.faults.hit == []


def test_fenced_raises_at_once_with_its_cause_and_sends_nothing_more():
    world = World()

    def overtaken(identity: Identity, floors: Ends) -> Sequence[Receipt]:
        overtake(world)
        return world.writes(0)(identity, floors)

    with pytest.raises(FencedError) as caught:
        world.run(0, overtaken)
    assert isinstance(caught.value.__cause__, AttemptFailedError)
    assert len(world.identities) == 1
    assert world.visible() == []
    check_silent(world)


def test_fenced_while_in_doubt_raises_at_once_and_ends_nothing(monkeypatch):
    world = World()
    commit = world.coordinator.commit

    def overtaken(deadline):
        overtake(world)
        return commit(deadline)

    with monkeypatch.context() as patch:
        patch.setattr(world.coordinator, "commit", overtaken)
        with pytest.raises(FencedError):
            world.run(0)
    assert (len(world.identities), world.visible(), list(world.emitted)) == (1, [], [])
    check_silent(world)


def test_no_redo_while_stopping():
    world = World()

    def stopped(identity: Identity, floors: Ends) -> Sequence[Receipt]:
        world.batches.is_stopping = True
        return world.writes(0, AttemptFailedError("cancelled"))(identity, floors)

    with pytest.raises(AttemptFailedError, match="cancelled"):
        world.run(0, stopped)
    assert len(world.identities) == 1
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT


def test_a_source_topic_made_anew_stops_before_anything_commits():
    world = World()
    world.run(0)
    world.cluster.ids = {"source": "another-id"}
    with pytest.raises(PromiseBrokenError, match="'source' was deleted and created again"):
        world.run(1)
    world.check(1)
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT


def test_a_stop_that_was_asked_for_begins_no_attempt():
    world = World()
    world.run(0)
    world.batches.is_stopping = True
    with pytest.raises(AttemptFailedError, match="asked to stop"):
        world.run(1)
    assert len(world.identities) == 1
    world.check(1)


def test_only_a_newer_owner_makes_require_owner_raise():
    world = World()
    world.run(0)
    world.batches.require_owner()
    world.run(1)
    older = world.batches
    world.start()
    with pytest.raises(FencedError):
        older.require_owner()
    world.run(2)
    world.check(3)


def test_an_emptied_ledger_stops_a_doubt():
    world = World()
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=TRIES))
    world.ledger_wire.read_records = lambda *_args, **_kwargs: []
    with pytest.raises(PromiseBrokenError, match="the ledger 'ledger' is empty"):
        world.run(0)
