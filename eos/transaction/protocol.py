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
from eos.kafka.api import NO_IDENTITY, Api, Identity, Profile
from eos.kafka.outcomes import Outcome
from eos.transaction.states import (
    API_OF,
    COMMANDS,
    Aborting,
    Answered,
    Committing,
    Disputed,
    Effect,
    Event,
    Failed,
    Fenced,
    InDoubt,
    Judging,
    Open,
    Ready,
    Recorded,
    Renewing,
    Spent,
    State,
    Stopped,
    Unfenced,
)

EPOCH_LAST: Final = 32_766  # the highest that a client is given; then a new producer id begins


class TransitionError(EosError):
    """A caller's mistake: the state is left as it was."""

    code = "internal"


class Row(NamedTuple):
    state: type[State]
    effects: tuple[Effect, ...] = ()


Key = Event | tuple[Api, Outcome | None]
Table = Mapping[tuple[type[State], Key], Row]
_Rows = dict[tuple[type[State], Key], Row]

_BAD: Final = (Outcome.ABORT, Outcome.UNKNOWN, Outcome.PROBE, Outcome.FENCED, Outcome.FATAL)


def _repeat(state: type[State], request: Effect) -> _Rows:
    """Same request, same bytes. No answer: perhaps the coordinator moved, so look it up again."""
    api = API_OF[request]
    looked_up = Row(state, (Effect.REFRESH, Effect.WAIT, request))
    return {
        (state, (api, Outcome.RETRY)): Row(state, (Effect.WAIT, request)),
        (state, (api, Outcome.REFRESH)): looked_up,
        (state, (api, None)): looked_up,
    }


def _init(
    state: type[State], request: Effect, ok: type[State], fenced: type[State], no: type[State]
) -> _Rows:
    """An init in `state`: granted, refused as fenced, refused otherwise, not answered in time."""
    again = Row(state, (Effect.WAIT, request))
    api = Api.INIT_PRODUCER_ID
    return _repeat(state, request) | {
        (state, (api, Outcome.OK)): Row(ok),
        (state, (api, Outcome.ABORT)): again,
        (state, (api, Outcome.PROBE)): again,
        (state, (api, Outcome.FENCED)): Row(fenced, (Effect.RAISE,)),
        (state, (api, Outcome.UNKNOWN)): Row(no, (Effect.RAISE,)),
        (state, (api, Outcome.FATAL)): Row(no, (Effect.RAISE,)),
        (state, Event.GAVE_UP): Row(state, (Effect.RAISE,)),
    }


def _inside(state: type[State], request: Effect, ok: type[State]) -> _Rows:
    """A request inside the attempt: whatever is neither success nor retriable fails it."""
    failed = Row(Failed, (Effect.RAISE,))
    api = API_OF[request]
    return {
        **_repeat(state, request),
        (state, (api, Outcome.OK)): Row(ok),
        (state, Event.GAVE_UP): failed,
        **{(state, (api, outcome)): failed for outcome in _BAD},
    }


def _end(state: type[State], request: Effect, ok: Row, otherwise: Row, late: Row) -> _Rows:
    api = Api.END_TXN
    return {
        **_repeat(state, request),
        (state, (api, Outcome.OK)): ok,
        (state, Event.GAVE_UP): late,
        **{(state, (api, outcome)): otherwise for outcome in _BAD},
    }


def _table(profile: Profile) -> Table:
    init, blank, again = (Effect.INIT,), (Effect.INIT_BLANK,), (Effect.RAISE,)
    is_tv1 = profile is Profile.TV1
    add = (Effect.ADD_PARTITIONS,) if is_tv1 else ()
    join = (Effect.ADD_OFFSETS,) if is_tv1 else ()
    abort, renew = Row(Aborting, (Effect.END_ABORT,)), Row(Renewing, init)
    final = (Fenced, Stopped, Disputed)
    rows: _Rows = {(state, event): Row(state, again) for state, event in product(final, COMMANDS)}
    rows |= {
        (Unfenced, Event.FENCE): Row(Unfenced, blank),
        (Ready, Event.BEGIN): Row(Open),
        (Ready, Event.ABORT): Row(Ready),
        (Open, Event.WRITE): Row(Open, (*add, Effect.PRODUCE)),
        (Open, Event.OFFSETS): Row(Open, (*join, Effect.COMMIT_OFFSETS)),
        (Open, Event.FAIL): Row(Failed),
        (Open, Event.ABORT): abort,
        (Recorded, Event.OFFSETS): Row(Recorded, (*join, Effect.COMMIT_OFFSETS)),
        (Recorded, Event.COMMIT): Row(Committing, (Effect.END_COMMIT,)),
        (Recorded, Event.FAIL): Row(Failed),
        (Recorded, Event.ABORT): abort,
        (Failed, Event.WRITE): Row(Failed, again),
        (Failed, Event.OFFSETS): Row(Failed, again),
        (Failed, Event.COMMIT): Row(Failed, again),
        (Failed, Event.FAIL): Row(Failed),
        (Failed, Event.ABORT): abort,
        (Committing, Event.COMMIT): Row(Committing, (Effect.END_COMMIT,)),
        (Committing, Event.SETTLE): Row(InDoubt, init),
        (InDoubt, Event.SETTLE): Row(InDoubt, init),
        (Judging, Event.SETTLE): Row(Judging),
        (Judging, Event.SETTLED): Row(Ready),
        (Aborting, Event.ABORT): abort,
        (Renewing, Event.ABORT): renew,
        (Renewing, Event.BEGIN): renew,
        (Renewing, Event.ROTATED): Row(Judging),
        (Disputed, Event.FENCE_AGAIN): Row(Disputed, init),
    }
    if is_tv1:
        rows |= {(Spent, event): renew for event in (Event.BEGIN, Event.ABORT)}
    rows |= _init(Unfenced, Effect.INIT_BLANK, Ready, Fenced, Stopped)
    rows |= _init(Disputed, Effect.INIT, Judging, Disputed, Stopped)
    rows |= _init(Renewing, Effect.INIT, Ready, Disputed, Stopped)
    rows |= _init(InDoubt, Effect.INIT, Judging, Disputed, InDoubt)
    rows |= _inside(Open, Effect.PRODUCE, Recorded)
    for state in (Open, Recorded):
        for request in (*(add if state is Open else ()), *join, Effect.COMMIT_OFFSETS):
            rows |= _inside(state, request, state)
    committed, doubt = Row(Spent if is_tv1 else Ready), Row(InDoubt)
    rows |= _end(Committing, Effect.END_COMMIT, committed, doubt, doubt)
    aborted = renew if is_tv1 else Row(Ready)
    rows |= _end(Aborting, Effect.END_ABORT, aborted, renew, Row(Aborting, again))
    return rows


TABLES: Final[Mapping[Profile, Table]] = {profile: _table(profile) for profile in Profile}


def step(
    profile: Profile, state: State, event: Event | Answered
) -> tuple[State, tuple[Effect, ...]]:
    """The next state and what to do. Raises TransitionError if the caller may not ask for that."""
    if isinstance(event, Event):
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
    key: Key = Event.ROTATED if is_rotated else (event.api, outcome)
    row = TABLES[profile].get((type(state), key))
    if row is None:  # an answer to a question that was not asked: trust nothing from here on
        row = Row(InDoubt if isinstance(state, Committing | InDoubt) else Stopped, (Effect.RAISE,))
    return row.state(identity), row.effects


def _gives_identity(profile: Profile, api: Api) -> bool:
    return api is Api.INIT_PRODUCER_ID or (api is Api.END_TXN and profile is Profile.TV2)


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
