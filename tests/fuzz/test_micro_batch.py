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
from support.doubles import Execute
from support.errors import examples, make_error, raises
from support.simulated_broker import Fault, Phase, Strike
from support.simulated_broker.kit import Tries, record_batch
from support.simulated_broker.runs import (
    ALL,
    EVERYWHERE,
    SIZE,
    TARGET,
    TIMEOUT_MS,
    TRIES,
    FewTries,
    Interrupt,
    World,
)

from eos.errors import (
    AttemptFailedError,
    DedupRetryError,
    EosError,
    FencedError,
    PromiseBrokenError,
    RecordRefusedError,
    UnavailableError,
)
from eos.faults import MOMENTS, POINTS
from eos.kafka.api import Api, Identity, TransactionProfile
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends
from eos.observe import events
from eos.transaction import micro_batch as module
from eos.transaction.attempt_events import reason_of
from eos.transaction.attempt_work import AttemptFacts
from eos.transaction.micro_batch import ATTEMPTS_MAX


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


# --- whatever happens ---------------------------------------------------------------------------

ERRORS = (AttemptFailedError, UnavailableError, RecordRefusedError, ValueError, KeyboardInterrupt)
ALL_POINTS = [f"{point}:{moment}" for point in POINTS for moment in MOMENTS]
REQUESTS = (Api.PRODUCE, Api.TXN_OFFSET_COMMIT, Api.INIT_PRODUCER_ID, *[Api.END_TXN] * 3)
TV1_REQUESTS = (Api.ADD_PARTITIONS, Api.ADD_OFFSETS)
faults = st.builds(
    Fault,
    st.sampled_from(REQUESTS + TV1_REQUESTS),
    st.sampled_from(list(Strike)),
    nth=st.integers(1, 4),
    code=st.sampled_from((-1, 7, 14, 15, 16, 19, 47, 48, 51, 120)),
    times=st.integers(1, 6),
)
# What befalls one call of a micro-batch, in how many attempts its transaction outlives its timeout;
# and whether Spark calls again in the same process.
trouble = st.tuples(
    st.lists(faults, max_size=2),
    st.sampled_from(["", "", *ALL_POINTS]),
    st.sampled_from(ERRORS),
    st.lists(st.sampled_from([None, *ERRORS]), max_size=2),
    st.sampled_from((0, 0, 1, 2)),
    st.booleans(),
)


def overdue(world: World, execute: Execute, times: int) -> Execute:
    left = [TIMEOUT_MS] * times

    def late(identity: Identity, floors: Ends) -> Sequence[Receipt]:
        receipts = execute(identity, floors)
        world.broker.advance(left.pop() if left else 0)
        return receipts

    return late


@settings(
    max_examples=examples(250),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.lists(trouble, max_size=6), st.sampled_from(EVERYWHERE))
def test_each_micro_batch_is_visible_once_whatever_happens(troubles, where):
    world = World(*where)
    number = 0
    for faults, point, kind, job_errors, timeouts, is_same_process in troubles:
        for fault in faults:
            world.broker.arm(fault)
        world.crash = Interrupt(point, kind)
        errors = [error and make_error(error, "the job") for error in job_errors]
        try:
            world.run(number, overdue(world, world.writes(number, *errors), timeouts))
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
    # FenceUnclear: a broker said that somebody took over, who was not there. That is final, too.
    if world.coordinator.state.__class__.__name__ in {"FenceUnclear", "Fenced", "Stopped"}:
        world.start()
    for _ in range(3):
        world.run(number)
        number += 1
    world.check(number)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, AttemptFailedError])
@pytest.mark.parametrize("point", ALL_POINTS)
@ALL
def test_interrupted_at_a_point_the_next_call_goes_on_from_what_is_true(point, kind, where):
    world = World(*where)
    world.run(0)
    world.crash = Interrupt(point, kind)
    with suppress(kind):
        world.run(1)
    assert world.crash.point in {"", "first_produce:before", "first_produce:after"}
    world.run(1)
    world.run(2)
    world.check(3)


# --- one thing at a time ------------------------------------------------------------------------


@ALL
def test_a_micro_batch_is_one_transaction_with_ledger_and_offsets(where):
    world = World(*where)
    world.run(0, facts=lambda: AttemptFacts(records_read=1))
    world.check(1)
    body = world.ledger_body()
    assert body["attempt"]["records_read"] == 1
    assert body["attempt"]["starts"] == {"source": {"0": 0}}
    assert body["attempt"]["receipts"][0]["sequence_last"] == 0
    assert (body["query_id"], body["topic_ids"]) == ("q", {"source": "topic-id"})
    (told,) = world.of_kind(events.MicroBatchCommitted)
    assert (told.batch_id, told.attempt, told.records_out) == (0, 1, 1)
    assert (told.offsets_in, told.records_in) == (SIZE, 1)


@pytest.mark.parametrize("strike", [Strike.LOSE_ANSWER, Strike.LOSE_REQUEST])
@ALL
def test_a_commit_in_doubt_is_settled_by_the_ledger(strike, where):
    world = World(*where)
    is_committed = strike is Strike.LOSE_ANSWER
    world.broker.arm(Fault(Api.END_TXN, strike, times=TRIES))
    world.run(0)
    world.check(1)
    assert len(world.identities) == (1 if is_committed else 2)
    assert [e.will_redo for e in world.of_kind(events.AttemptFailed)] == [True] * (not is_committed)


@ALL
def test_a_doubt_that_nobody_settles_is_never_aborted_and_settled_by_the_next_call(where):
    world = World(*where)
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_ANSWER, times=TRIES))
    nth = (
        1 if world.profile is TransactionProfile.TV2 else 2
    )  # TV1's first is for the attempt's epoch
    world.broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.LOSE_REQUEST, nth, times=TRIES))
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
        raise UnavailableError("example", "ListOffsets had no answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.ledger_wire, "list_offsets", fails)
        with pytest.raises(UnavailableError, match="ListOffsets"):
            world.run(0)
    assert world.coordinator.is_in_doubt
    world.run(0)
    world.check(1)


@ALL
def test_a_failed_attempt_is_redone_under_a_new_epoch_at_most_three_times(where):
    world = World(*where)
    world.run(
        0,
        world.writes(
            0, AttemptFailedError("example", "once"), AttemptFailedError("example", "twice")
        ),
    )
    world.check(1)
    assert len(set(world.identities)) == ATTEMPTS_MAX == 3
    last = AttemptFailedError("example", "the last")
    with pytest.raises(AttemptFailedError) as caught:
        world.run(
            1,
            world.writes(
                1, AttemptFailedError("example", "1"), AttemptFailedError("example", "2"), last
            ),
        )
    assert caught.value is last
    assert len(set(world.identities)) == 6
    assert [e.will_redo for e in world.of_kind(events.AttemptFailed)] == [True] * 4 + [False]
    assert world.broker.phase("id") in {Phase.COMPLETE_ABORT, Phase.EMPTY}
    assert world.visible() == [0]


@ALL
def test_a_retry_of_dedup_is_no_failure_and_the_next_run_validates_first(where):
    world = World(*where)
    retried = world.writes(0, DedupRetryError("example", "2 duplicate records"))
    world.run(0, retried, facts=lambda: AttemptFacts(validate_first=8))
    world.check(1)
    assert world.of_kind(events.AttemptFailed) == []
    assert world.of_kind(events.AttemptRetried) == [
        events.AttemptRetried(0, 1, "2 duplicate records", *world.identities[0])
    ]
    (noted,) = world.ledger_body()["failed"]
    assert noted["error"] == "dedup_retry"
    world.batches.note("stop")
    world.start()
    assert world.batches.position.validate_first == 8
    world.run(1)
    assert "validate_first" not in world.ledger_body()


@ALL
def test_a_straggler_of_a_failed_attempt_is_refused(where):
    world = World(*where)
    world.run(0, world.writes(0, AttemptFailedError("example", "once")))
    blob = record_batch(world.identities[0], 1, [b"99"])
    assert world.port.produce("id", {TARGET: blob}, Tries(1))[TARGET].error == 47
    world.check(1)


@pytest.mark.parametrize(
    "error",
    [
        RecordRefusedError("example", "too large"),
        UnavailableError("example", "gone"),
        ValueError("a mistake"),
    ],
)
def test_what_a_redo_does_not_mend_raises_at_once_and_leaves_nothing_open(error):
    world = World()
    with pytest.raises(type(error)) as caught:
        world.run(0, world.writes(0, error))
    assert caught.value is error
    assert len(world.identities) == 1
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT
    (told,) = world.of_kind(events.AttemptFailed)
    assert told.reason == reason_of(error)
    assert not told.will_redo


@ALL
def test_an_abort_that_fails_hides_nothing_and_is_made_up_for(where):
    world = World(*where)
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=TRIES))
    error = AttemptFailedError("example", "the cause")
    with pytest.raises(AttemptFailedError) as caught:
        world.run(0, world.writes(0, error))
    assert caught.value is error
    assert not world.of_kind(events.AttemptFailed)[0].will_redo
    (told,) = world.of_kind(events.Warned)
    assert "could not be aborted: EndTxn had no response" in told.message
    assert world.broker.phase("id") is Phase.ONGOING
    world.run(0)  # the attempt before is ended first, under its own epoch
    world.check(1)


def check_silent(world: World) -> None:
    """Called once more it raises again, and sends nothing."""
    for api in Api:
        world.broker.arm(Fault(api, Strike.LOSE_REQUEST))
    with pytest.raises(FencedError):
        world.run(0)
    assert world.broker.faults.hit == []


@ALL
def test_fenced_raises_at_once_with_its_cause_and_sends_nothing_more(where):
    world = World(*where)

    def overtaken(identity: Identity, floors: Ends) -> Sequence[Receipt]:
        world.another()
        return world.writes(0)(identity, floors)

    with pytest.raises(FencedError) as caught:
        world.run(0, overtaken)
    assert isinstance(caught.value.__cause__, AttemptFailedError)
    assert len(world.identities) == 1
    assert world.visible() == []
    check_silent(world)


@ALL
def test_fenced_while_in_doubt_raises_at_once_and_ends_nothing(monkeypatch, where):
    world = World(*where)
    commit = world.coordinator.commit

    def overtaken(deadline):
        world.another()
        return commit(deadline)

    with monkeypatch.context() as patch:
        patch.setattr(world.coordinator, "commit", overtaken)
        with pytest.raises(FencedError):
            world.run(0)
    assert (len(world.identities), world.visible()) == (1, [])
    kinds = [type(event) for event in world.emitted]
    assert kinds == [events.AttemptStarted, events.RequestRejected]  # and no end of the attempt
    check_silent(world)


def test_no_redo_while_stopping():
    world = World()

    def stopped(identity: Identity, floors: Ends) -> Sequence[Receipt]:
        world.batches.is_stopping = True
        return world.writes(0, AttemptFailedError("example", "cancelled"))(identity, floors)

    with pytest.raises(AttemptFailedError, match="cancelled"):
        world.run(0, stopped)
    assert [(e.is_requested, e.will_redo) for e in world.of_kind(events.AttemptFailed)] == [
        (True, False)
    ]
    assert len(world.identities) == 1
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT


def test_a_source_topic_made_anew_stops_before_anything_commits():
    world = World()
    world.run(0)
    world.cluster.ids = {"source": "another-id"}
    with raises("recreated", PromiseBrokenError) as caught:
        world.run(1)
    assert caught.value.fields["topic"] == "source"
    world.check(1)
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT


def test_a_stop_that_was_asked_for_begins_no_attempt():
    world = World()
    world.run(0)
    world.batches.is_stopping = True
    with raises("stop_requested"):
        world.run(1)
    assert len(world.identities) == 1
    world.check(1)


@ALL
def test_only_a_newer_owner_makes_require_owner_raise(where):
    world = World(*where)
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
    with raises("ledger_gone"):
        world.run(0)
