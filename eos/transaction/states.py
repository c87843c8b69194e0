"""States, events and effects of the transaction protocol.

The docstring of each state lists the states that may follow it. `protocol` defines the conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from eos.kafka.api import NO_IDENTITY, Api, Identity
from eos.kafka.outcomes import Outcome


class ProtocolEvent(Enum):
    """An event of the transaction protocol: a command of the caller, or GAVE_UP or ROTATED.

    GAVE_UP: a request had no final response by its deadline. ROTATED: InitProducerId with (id,
    epoch) was granted under another producer id.
    """

    FENCE = "fence"
    BEGIN = "begin"
    WRITE = "produce"
    OFFSETS = "commit_offsets"
    FAIL = "fail"
    COMMIT = "commit"
    ABORT = "abort"
    SETTLE = "settle"
    SETTLED = "settled"
    FENCE_AGAIN = "fence_again"
    GAVE_UP = "gave up"
    ROTATED = "rotated"


class RequestAnswer(NamedTuple):
    """A response of the broker. If no response arrived, `outcome` is None, and the broker may or
    may not have carried out the request."""

    api: Api
    outcome: Outcome | None
    identity: Identity = NO_IDENTITY


class Effect(Enum):
    """An action that the coordinator carries out, such as a request. A request's response is the
    next event."""

    INIT_BLANK = "InitProducerId that takes over from any owner"
    INIT = "InitProducerId with our (id, epoch)"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    PRODUCE = "Produce"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END_COMMIT = "EndTxn(commit)"
    END_ABORT = "EndTxn(abort)"
    WAIT = "back off; GAVE_UP if the deadline has passed"
    REFRESH = "forget the coordinators"
    RAISE = "raise the error that the last answer stands for"


API_OF: Final[Mapping[Effect, Api]] = {
    Effect.INIT_BLANK: Api.INIT_PRODUCER_ID,
    Effect.INIT: Api.INIT_PRODUCER_ID,
    Effect.ADD_PARTITIONS: Api.ADD_PARTITIONS,
    Effect.PRODUCE: Api.PRODUCE,
    Effect.ADD_OFFSETS: Api.ADD_OFFSETS,
    Effect.COMMIT_OFFSETS: Api.TXN_OFFSET_COMMIT,
    Effect.END_COMMIT: Api.END_TXN,
    Effect.END_ABORT: Api.END_TXN,
}


@dataclass(frozen=True, slots=True)
class ProtocolState:
    """A state of the protocol. `identity` is the producer id and epoch of the running attempt, or
    of the next one."""

    identity: Identity = NO_IDENTITY


class Unfenced(ProtocolState):
    """This process does not own the transactional id yet. -> Ready; if refused: -> Fenced,
    -> Stopped."""


class Ready(ProtocolState):
    """A producer id and epoch that no attempt has used. -> Open."""


class Open(ProtocolState):
    """A running attempt: writers may produce. -> Recorded, -> Failed, -> Aborting."""


class Recorded(ProtocolState):
    """A running attempt whose ledger record was written in its transaction. -> Committing,
    -> Failed, -> Aborting."""


class Failed(ProtocolState):
    """An attempt that must not commit. -> Aborting."""


class Committing(ProtocolState):
    """EndTxn(commit) may have been sent. -> Ready, under TV1 -> EpochUsed; outcome unknown:
    -> InDoubt."""


class InDoubt(ProtocolState):
    """EndTxn(commit) was sent, and its outcome is unknown. After InitProducerId with (id, epoch):
    -> AwaitingLedger, -> FenceUnclear."""


class AwaitingLedger(ProtocolState):
    """A new identity without an open transaction, which must not be used yet. The ledger's end is
    now final: it shows whether the attempt in doubt committed, and whether another owner wrote.
    -> Ready."""


class Aborting(ProtocolState):
    """EndTxn(abort) may have been sent. -> Ready; under TV1, or if refused: -> Renewing."""


class EpochUsed(ProtocolState):
    """Under TV1, after a commit: the next attempt needs a new epoch. -> Renewing."""


class Renewing(ProtocolState):
    """InitProducerId with (id, epoch) requests a new epoch. It also detects a newer owner: the
    broker refuses it after a takeover, and under TV2 grants it after a mere timeout. -> Ready,
    -> FenceUnclear, -> Stopped.

    If the response has another producer id: -> AwaitingLedger. Either the epochs of the old one ran
    out, or the broker forgot the transactional id and its owners since. The response is the same in
    both cases.
    """


class FenceUnclear(ProtocolState):
    """InitProducerId was refused as fenced, perhaps because of this process's own requests.

    If `ownership_check` finds no newer owner, it sends InitProducerId with the coordinator's
    current identity. -> AwaitingLedger, -> Stopped.
    """


class Fenced(ProtocolState):
    """Final: a newer owner has the transactional id."""


class Stopped(ProtocolState):
    """Final: the broker refused a request for good, or sent an impossible response."""


STATES: Final = tuple(ProtocolState.__subclasses__())
COMMANDS: Final = tuple(set(ProtocolEvent) - {ProtocolEvent.GAVE_UP, ProtocolEvent.ROTATED})
