"""The transaction protocol as data: states, events, effects, and the table that joins them.

No I/O, no clock: `step` looks a row up, `coordinator` carries its effects out. Both profiles stand
in one table. TV2 (KIP-890) takes the next identity from EndTxn's answer; TV1 adds partitions and
the group itself and asks for a new epoch by an init with (id, epoch) after each end (KIP-360).

What the rows keep true, whatever the broker answers:
- a failed attempt ends with a new epoch in hand, even if nothing was sent, or a straggling writer
  of it would join the next attempt;
- a blank init takes the id from any owner, so it happens once; later ones carry (id, epoch) and
  fail for an owner that was replaced;
- after the first byte of EndTxn(commit) nothing aborts: the same commit is repeated, and what it
  leaves open is closed by an init with (id, epoch). Only then the ledger says what happened;
- nothing is committed without the ledger record by which that could be said.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final, NamedTuple

from eos.errors import EosError
from eos.kafka.api import NO_IDENTITY, Api, Identity, TransactionProfile
from eos.kafka.outcomes import Outcome
from eos.transaction.states import (
    API_OF,
    COMMANDS,
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
    ProtocolState,
    Ready,
    Recorded,
    Renewing,
    RequestAnswer,
    Stopped,
    Unfenced,
)

EPOCH_LAST: Final = 32_766  # the highest that a client is given; then a new producer id begins


class TransitionError(EosError):
    """A caller's mistake: the state is left as it was."""

    code = "internal"


class Transition(NamedTuple):
    state: type[ProtocolState]
    effects: tuple[Effect, ...] = ()


Key = ProtocolEvent | tuple[Api, Outcome | None]
Table = Mapping[tuple[type[ProtocolState], Key], Transition]
_Rows = dict[tuple[type[ProtocolState], Key], Transition]

_BAD: Final = (Outcome.ABORT, Outcome.UNKNOWN, Outcome.PROBE, Outcome.FENCED, Outcome.FATAL)


def _repeat(state: type[ProtocolState], request: Effect) -> _Rows:
    """Same request, same bytes. No answer: perhaps the coordinator moved, so look it up again."""
    api = API_OF[request]
    looked_up = Transition(state, (Effect.REFRESH, Effect.WAIT, request))
    return {
        (state, (api, Outcome.RETRY)): Transition(state, (Effect.WAIT, request)),
        (state, (api, Outcome.REFRESH)): looked_up,
        (state, (api, None)): looked_up,
    }


def _init(
    state: type[ProtocolState],
    request: Effect,
    ok: type[ProtocolState],
    fenced: type[ProtocolState],
    no: type[ProtocolState],
) -> _Rows:
    """An init in `state`: granted, refused as fenced, refused otherwise, not answered in time."""
    again = Transition(state, (Effect.WAIT, request))
    api = Api.INIT_PRODUCER_ID
    return _repeat(state, request) | {
        (state, (api, Outcome.OK)): Transition(ok),
        (state, (api, Outcome.ABORT)): again,
        (state, (api, Outcome.PROBE)): again,
        (state, (api, Outcome.FENCED)): Transition(fenced, (Effect.RAISE,)),
        (state, (api, Outcome.UNKNOWN)): Transition(no, (Effect.RAISE,)),
        (state, (api, Outcome.FATAL)): Transition(no, (Effect.RAISE,)),
        (state, ProtocolEvent.GAVE_UP): Transition(state, (Effect.RAISE,)),
    }


def _inside(state: type[ProtocolState], request: Effect, ok: type[ProtocolState]) -> _Rows:
    """A request inside the attempt: whatever is neither success nor retriable fails it."""
    failed = Transition(Failed, (Effect.RAISE,))
    api = API_OF[request]
    return {
        **_repeat(state, request),
        (state, (api, Outcome.OK)): Transition(ok),
        (state, ProtocolEvent.GAVE_UP): failed,
        **{(state, (api, outcome)): failed for outcome in _BAD},
    }


def _end(
    state: type[ProtocolState],
    request: Effect,
    ok: Transition,
    otherwise: Transition,
    late: Transition,
) -> _Rows:
    api = Api.END_TXN
    return {
        **_repeat(state, request),
        (state, (api, Outcome.OK)): ok,
        (state, ProtocolEvent.GAVE_UP): late,
        **{(state, (api, outcome)): otherwise for outcome in _BAD},
    }


def _table(profile: TransactionProfile) -> Table:
    init, blank, again = (Effect.INIT,), (Effect.INIT_BLANK,), (Effect.RAISE,)
    is_tv1 = profile is TransactionProfile.TV1
    add = (Effect.ADD_PARTITIONS,) if is_tv1 else ()
    join = (Effect.ADD_OFFSETS,) if is_tv1 else ()
    abort, renew = Transition(Aborting, (Effect.END_ABORT,)), Transition(Renewing, init)
    final = (Fenced, Stopped, FenceUnclear)
    rows: _Rows = {
        (state, event): Transition(state, again) for state, event in product(final, COMMANDS)
    }
    rows |= {
        (Unfenced, ProtocolEvent.FENCE): Transition(Unfenced, blank),
        (Ready, ProtocolEvent.BEGIN): Transition(Open),
        (Ready, ProtocolEvent.ABORT): Transition(Ready),
        (Open, ProtocolEvent.WRITE): Transition(Open, (*add, Effect.PRODUCE)),
        (Open, ProtocolEvent.OFFSETS): Transition(Open, (*join, Effect.COMMIT_OFFSETS)),
        (Open, ProtocolEvent.FAIL): Transition(Failed),
        (Open, ProtocolEvent.ABORT): abort,
        (Recorded, ProtocolEvent.OFFSETS): Transition(Recorded, (*join, Effect.COMMIT_OFFSETS)),
        (Recorded, ProtocolEvent.COMMIT): Transition(Committing, (Effect.END_COMMIT,)),
        (Recorded, ProtocolEvent.FAIL): Transition(Failed),
        (Recorded, ProtocolEvent.ABORT): abort,
        (Failed, ProtocolEvent.WRITE): Transition(Failed, again),
        (Failed, ProtocolEvent.OFFSETS): Transition(Failed, again),
        (Failed, ProtocolEvent.COMMIT): Transition(Failed, again),
        (Failed, ProtocolEvent.FAIL): Transition(Failed),
        (Failed, ProtocolEvent.ABORT): abort,
        (Committing, ProtocolEvent.COMMIT): Transition(Committing, (Effect.END_COMMIT,)),
        (Committing, ProtocolEvent.SETTLE): Transition(InDoubt, init),
        (InDoubt, ProtocolEvent.SETTLE): Transition(InDoubt, init),
        (AwaitingLedger, ProtocolEvent.SETTLE): Transition(AwaitingLedger),
        (AwaitingLedger, ProtocolEvent.SETTLED): Transition(Ready),
        (Aborting, ProtocolEvent.ABORT): abort,
        (Renewing, ProtocolEvent.ABORT): renew,
        (Renewing, ProtocolEvent.BEGIN): renew,
        (Renewing, ProtocolEvent.ROTATED): Transition(AwaitingLedger),
        (FenceUnclear, ProtocolEvent.FENCE_AGAIN): Transition(FenceUnclear, init),
    }
    if is_tv1:
        rows |= {(EpochUsed, event): renew for event in (ProtocolEvent.BEGIN, ProtocolEvent.ABORT)}
    rows |= _init(Unfenced, Effect.INIT_BLANK, Ready, Fenced, Stopped)
    rows |= _init(FenceUnclear, Effect.INIT, AwaitingLedger, FenceUnclear, Stopped)
    rows |= _init(Renewing, Effect.INIT, Ready, FenceUnclear, Stopped)
    rows |= _init(InDoubt, Effect.INIT, AwaitingLedger, FenceUnclear, InDoubt)
    rows |= _inside(Open, Effect.PRODUCE, Recorded)
    for state in (Open, Recorded):
        for request in (*(add if state is Open else ()), *join, Effect.COMMIT_OFFSETS):
            rows |= _inside(state, request, state)
    committed, doubt = Transition(EpochUsed if is_tv1 else Ready), Transition(InDoubt)
    rows |= _end(Committing, Effect.END_COMMIT, committed, doubt, doubt)
    aborted = renew if is_tv1 else Transition(Ready)
    rows |= _end(Aborting, Effect.END_ABORT, aborted, renew, Transition(Aborting, again))
    return rows


TABLES: Final[Mapping[TransactionProfile, Table]] = {
    profile: _table(profile) for profile in TransactionProfile
}


def step(
    profile: TransactionProfile, state: ProtocolState, event: ProtocolEvent | RequestAnswer
) -> tuple[ProtocolState, tuple[Effect, ...]]:
    """The next state and what to do. Raises TransitionError if the caller may not ask for that."""
    if isinstance(event, ProtocolEvent):
        row = TABLES[profile].get((type(state), event))
        if row is None:
            raise TransitionError(
                f"{event.value} is not possible in {type(state).__name__}",
                state=type(state).__name__,
                event=event.value,
            )
        return row.state(state.identity), row.effects
    outcome, identity = event.outcome, state.identity
    if outcome is Outcome.OK and _gives_identity(profile, event.api):
        before = NO_IDENTITY if isinstance(state, Unfenced) else identity
        is_next = _follows(before, event.identity)
        outcome, identity = (outcome, event.identity) if is_next else (Outcome.UNKNOWN, identity)
    is_rotated = isinstance(state, Renewing) and identity.producer_id != state.identity.producer_id
    key: Key = ProtocolEvent.ROTATED if is_rotated else (event.api, outcome)
    row = TABLES[profile].get((type(state), key))
    if row is None:  # an answer to a question that was not asked: trust nothing from here on
        row = Transition(
            InDoubt if isinstance(state, Committing | InDoubt) else Stopped, (Effect.RAISE,)
        )
    return row.state(identity), row.effects


def _gives_identity(profile: TransactionProfile, api: Api) -> bool:
    return api is Api.INIT_PRODUCER_ID or (api is Api.END_TXN and profile is TransactionProfile.TV2)


def _follows(before: Identity, after: Identity) -> bool:
    """Ids rotate, so both halves come from the answer. But one that is not new would let two
    attempts share an epoch; and a new producer id while ours has epochs left means that the
    transactional id expired, and with it all memory of who owned it since. When they have run out,
    an init's answer doesn't tell the two apart: the ledger is asked (`ROTATED`)."""
    if before == NO_IDENTITY:
        return after.producer_id >= 0
    if after.producer_id == before.producer_id:
        return after.epoch > before.epoch
    return after.producer_id >= 0 and before.epoch >= EPOCH_LAST
