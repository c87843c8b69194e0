"""The state machine of the transaction protocol: per state and event, the next state and the
requests to send.

This module has no I/O and no clock: `step` looks up one row of a table, and `coordinator` sends the
requests. One table serves both transaction profiles. Under TV2 (KIP-890), the response to EndTxn
carries the next identity. Under TV1, the client adds the partitions and the group to the
transaction. After each end it requests a new epoch by InitProducerId with (id, epoch) (KIP-360).

The table keeps these rules, whatever the broker responds:
- After a failed attempt the epoch is raised, even if the attempt sent nothing. Otherwise one of its
  tasks that still runs could write into the next attempt.
- InitProducerId without an identity takes the transactional id from any owner, so it is sent once.
  Later ones carry (id, epoch), and the broker refuses them for a replaced owner.
- Never abort after EndTxn(commit): once its first byte is sent, the same commit is retried. If its
  outcome stays unknown, InitProducerId with (id, epoch) ends the transaction. Only then is the
  ledger read.
- A transaction without a ledger record is never committed, because nothing could prove the commit.
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

EPOCH_LAST: Final = 32_766  # the last epoch of a producer id; then the broker gives out a new id


class TransitionError(EosError):
    """An event that the current state does not allow: a programming error of the caller. The state
    is unchanged."""


class Transition(NamedTuple):
    state: type[ProtocolState]
    effects: tuple[Effect, ...] = ()


Key = ProtocolEvent | tuple[Api, Outcome | None]
Table = Mapping[tuple[type[ProtocolState], Key], Transition]
_Rows = dict[tuple[type[ProtocolState], Key], Transition]

_BAD: Final = (Outcome.ABORT, Outcome.UNKNOWN, Outcome.PROBE, Outcome.FENCED, Outcome.FATAL)


def _repeat(state: type[ProtocolState], request: Effect) -> _Rows:
    """Return the table rows that retry a request with the same bytes. If no response arrived, look
    up the coordinator again, since it may have moved."""
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
    """Return the rows of an InitProducerId in `state`. The results are: granted (`ok`), refused as
    fenced (`fenced`), refused otherwise (`no`), and no response by the deadline."""
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
    """Return the rows of a request inside an attempt. Any response that is neither success nor
    retriable fails the attempt."""
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
    """Return the next state and the effects to carry out. Raise TransitionError if the state does
    not allow the event."""
    if isinstance(event, ProtocolEvent):
        row = TABLES[profile].get((type(state), event))
        if row is None:
            raise TransitionError(
                "transition_not_allowed",
                f"{event.value} is not possible in state {type(state).__name__}",
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
    if row is None:  # an impossible response: the outcome is unknown
        row = Transition(
            InDoubt if isinstance(state, Committing | InDoubt) else Stopped, (Effect.RAISE,)
        )
    return row.state(identity), row.effects


def _gives_identity(profile: TransactionProfile, api: Api) -> bool:
    return api is Api.INIT_PRODUCER_ID or (api is Api.END_TXN and profile is TransactionProfile.TV2)


def _follows(before: Identity, after: Identity) -> bool:
    """Return whether identity `after` is a valid successor of `before`.

    Both the id and the epoch come from the response, because producer ids rotate.
    - The same identity again is not valid: two attempts would share an epoch.
    - A new producer id, while the old one has epochs left, is not valid. It means that the
      transactional id expired, and the broker forgot the owners since.
    - If the epochs have run out, the response to InitProducerId looks the same in both cases. Then
      the ledger decides (`ROTATED`).
    """
    if before == NO_IDENTITY:
        return after.producer_id >= 0
    if after.producer_id == before.producer_id:
        return after.epoch > before.epoch
    return after.producer_id >= 0 and before.epoch >= EPOCH_LAST
