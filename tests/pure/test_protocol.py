"""The transition tables: what no sequence of answers may lead to. No broker, no I/O."""

import re

import pytest

from eos.kafka.api import NO_IDENTITY, Api, Identity, TransactionProfile
from eos.kafka.outcomes import Outcome
from eos.transaction.protocol import TABLES, TransitionError, step
from eos.transaction.states import (
    API_OF,
    COMMANDS,
    STATES,
    Aborting,
    AwaitingLedger,
    Committing,
    Effect,
    EpochUsed,
    Failed,
    Fenced,
    FenceUnclear,
    InDoubt,
    Open,
    ProtocolEvent,
    Ready,
    Recorded,
    Renewing,
    RequestAnswer,
    Stopped,
    Unfenced,
)

BOTH = pytest.mark.parametrize("profile", TransactionProfile)
OLD, NEW = Identity(7, 3), Identity(7, 4)
INIT_OK = RequestAnswer(Api.INIT_PRODUCER_ID, Outcome.OK, NEW)


def rows(profile, state=None):
    return {(at, key): row for (at, key), row in TABLES[profile].items() if state in (None, at)}


def reachable(profile, start, until=()):
    found, todo = set(), [start]
    while todo:
        state = todo.pop()
        if state in found:
            continue
        found.add(state)
        if state not in until:
            todo += [row.state for row in rows(profile, state).values()]
    return found


def test_each_states_docstring_names_where_it_leads():
    for state in STATES:
        written = set(re.findall(r"-> (\w+)", state.__doc__))
        led = {
            row.state.__name__
            for profile in TransactionProfile
            for row in rows(profile, state).values()
            if row.state is not state
        }
        assert written == led, state.__name__


@BOTH
def test_every_state_is_reached_and_only_tv1_has_spent(profile):
    # Stopped is also where an answer to no question leads, which is no row
    expected = set(STATES) - ({EpochUsed} if profile is TransactionProfile.TV2 else set())
    assert reachable(profile, Unfenced) == expected


@BOTH
def test_every_request_has_a_row_for_every_outcome_and_for_silence(profile):
    requests = [
        (state, key, row, request)
        for (state, key), row in rows(profile).items()
        for request in row.effects
        if request in API_OF
    ]
    assert {API_OF[request] for *_, request in requests} >= {Api.PRODUCE, Api.END_TXN}
    for state, key, row, request in requests:
        answers = {(API_OF[request], outcome) for outcome in [*Outcome, None]}
        missing = {a for a in answers if (row.state, a) not in TABLES[profile]}
        assert not missing, (state, key, request)
        assert (row.state, ProtocolEvent.GAVE_UP) in TABLES[profile], row.state


@BOTH
def test_every_repetition_waits_first(profile):
    """A request that an answer sends again must pass a WAIT, which is what the deadline ends."""
    repeated = set()
    for (state, key), row in rows(profile).items():
        if isinstance(key, ProtocolEvent) or row.state is not state:
            continue
        for request in set(row.effects) & set(API_OF):
            assert Effect.WAIT in row.effects[: row.effects.index(request)], (state, key)
            repeated.add(API_OF[request])
    assert repeated >= {Api.PRODUCE, Api.END_TXN}


@BOTH
def test_after_the_first_byte_of_a_commit_nothing_aborts(profile):
    closed = {AwaitingLedger, Ready, EpochUsed, Fenced, Stopped, FenceUnclear}
    open_states = reachable(profile, Committing, until=closed) - closed
    assert Committing in open_states
    for state in open_states:
        for key, row in rows(profile, state).items():
            assert Effect.END_ABORT not in row.effects, (state, key)


@BOTH
def test_a_commit_leaves_only_a_recorded_attempt(profile):
    sent = {at for (at, _), row in rows(profile).items() if Effect.END_COMMIT in row.effects}
    assert sent == {Recorded, Committing}
    entered = {at for (at, _), row in rows(profile).items() if row.state is Committing is not at}
    assert entered == {Recorded}
    recorded_by = {key for (at, key), row in rows(profile).items() if row.state is Recorded != at}
    assert recorded_by == {(Api.PRODUCE, Outcome.OK)}


@BOTH
def test_only_success_of_end_txn_leads_from_committing_to_the_next_attempt(profile):
    done = EpochUsed if profile is TransactionProfile.TV1 else Ready
    led = {key for (_, key), row in rows(profile, Committing).items() if row.state is done}
    assert led == {(Api.END_TXN, Outcome.OK)}
    assert {row.state for row in rows(profile, Committing).values()} == {Committing, InDoubt, done}


@BOTH
def test_the_blank_init_belongs_to_the_start(profile):
    blank = {at for (at, _), row in rows(profile).items() if Effect.INIT_BLANK in row.effects}
    assert blank == {Unfenced}
    with pytest.raises(TransitionError):
        step(profile, Ready(OLD), ProtocolEvent.FENCE)


@BOTH
def test_tv1_adds_before_it_writes_and_tv2_never_adds(profile):
    for row in rows(profile).values():
        sent = [effect for effect in row.effects if effect in API_OF]
        adds = [e for e in sent if e in {Effect.ADD_PARTITIONS, Effect.ADD_OFFSETS}]
        assert profile is TransactionProfile.TV1 or not adds
    write, _ = TABLES[profile][Open, ProtocolEvent.WRITE].effects, None
    offsets = TABLES[profile][Open, ProtocolEvent.OFFSETS].effects
    if profile is TransactionProfile.TV1:
        assert write == (Effect.ADD_PARTITIONS, Effect.PRODUCE)
        assert offsets == (Effect.ADD_OFFSETS, Effect.COMMIT_OFFSETS)
    else:
        assert (write, offsets) == ((Effect.PRODUCE,), (Effect.COMMIT_OFFSETS,))


@BOTH
@pytest.mark.parametrize("state", [Open, Recorded, Failed])
def test_a_failed_attempt_reaches_ready_only_through_a_new_identity(profile, state):
    """Every way from an attempt that is aborted into Ready is a granted init or a TV2 EndTxn."""
    grants = {(Api.INIT_PRODUCER_ID, Outcome.OK), ProtocolEvent.ROTATED}
    if profile is TransactionProfile.TV2:
        grants.add((Api.END_TXN, Outcome.OK))
    aborted, _ = step(profile, state(OLD), ProtocolEvent.ABORT)
    ways = set()
    for at in reachable(profile, type(aborted), until={Ready, AwaitingLedger}) - {
        Ready,
        AwaitingLedger,
    }:
        for (_, key), row in rows(profile, at).items():
            if row.state in {Ready, AwaitingLedger} and row.state is not at:
                assert key in grants, (at, key)
                ways.add(key)
    assert ways


@BOTH
@pytest.mark.parametrize(
    ("before", "after", "is_next"),
    [
        (OLD, NEW, True),
        (OLD, OLD, False),  # nothing new: two attempts would share an epoch
        (OLD, Identity(7, 2), False),
        (OLD, NO_IDENTITY, False),
        (OLD, Identity(8, 0), False),  # the transactional id expired, others may have owned it
        (Identity(7, 32_766), Identity(8, 0), True),  # epochs ran out, or the same
    ],
)
def test_an_identity_must_follow_the_one_before(profile, before, after, is_next):
    granted = RequestAnswer(Api.INIT_PRODUCER_ID, Outcome.OK, after)
    state, _ = step(profile, Renewing(before), granted)
    granted_as = Ready if after.producer_id == before.producer_id else AwaitingLedger
    assert state == (granted_as(after) if is_next else Stopped(before))
    state, _ = step(profile, InDoubt(before), granted)
    assert state == (AwaitingLedger(after) if is_next else InDoubt(before))
    if profile is TransactionProfile.TV2:
        ended = RequestAnswer(Api.END_TXN, Outcome.OK, after)
        assert step(profile, Committing(before), ended)[0] == (
            Ready(after) if is_next else InDoubt(before)
        )
        assert step(profile, Aborting(before), ended)[0] == (
            Ready(after) if is_next else Renewing(before)
        )


@BOTH
def test_a_blank_init_takes_whatever_identity_it_is_given(profile):
    assert step(profile, Unfenced(), INIT_OK) == (Ready(NEW), ())
    nothing = RequestAnswer(Api.INIT_PRODUCER_ID, Outcome.OK)
    assert step(profile, Unfenced(), nothing) == (Stopped(), (Effect.RAISE,))


def test_tv1_keeps_the_identity_that_end_txn_was_sent_with():
    ended = RequestAnswer(Api.END_TXN, Outcome.OK, NEW)
    assert step(TransactionProfile.TV1, Committing(OLD), ended) == (EpochUsed(OLD), ())
    assert step(TransactionProfile.TV1, Aborting(OLD), ended) == (Renewing(OLD), (Effect.INIT,))


@BOTH
def test_a_callers_mistake_raises_and_leaves_the_state_alone(profile):
    for state in STATES:
        for command in COMMANDS:
            if (state, command) in TABLES[profile]:
                continue
            before = state(OLD)
            with pytest.raises(TransitionError, match=command.value):
                step(profile, before, command)
            assert before == state(OLD)


@BOTH
@pytest.mark.parametrize("state", STATES)
def test_an_answer_to_no_question_stops_and_never_looks_like_success(profile, state):
    for api in Api:
        for outcome in [*Outcome, None]:
            if (state, (api, outcome)) in TABLES[profile]:
                continue
            after, effects = step(profile, state(OLD), RequestAnswer(api, outcome, NEW))
            kept = state in {Committing, InDoubt}
            assert type(after) is (InDoubt if kept else Stopped)
            assert effects == (Effect.RAISE,)


@BOTH
@pytest.mark.parametrize("state", [Fenced, Stopped])
def test_a_final_state_answers_every_command_with_its_error(profile, state):
    for command in COMMANDS:
        assert step(profile, state(OLD), command) == (state(OLD), (Effect.RAISE,))
