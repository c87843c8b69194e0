"""The words of the transaction protocol: its states, the events that move it, what it has done.

Where each state leads stands in its docstring; when, in `protocol`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from eos.kafka.api import NO_IDENTITY, Api, Identity
from eos.kafka.outcomes import Outcome


class ProtocolEvent(Enum):
    """What the caller asks for. Beside that GAVE_UP: a request had no final answer by its deadline;
    and ROTATED: an init with (id, epoch) was granted under another producer id."""

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
    """An answer. `outcome` is None if none came, so that nobody knows what the broker did."""

    api: Api
    outcome: Outcome | None
    identity: Identity = NO_IDENTITY


class Effect(Enum):
    """What to do, in this order. A request's answer is the next event."""

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
    """`identity` is the attempt's, or the next attempt's. Each state names where it leads."""

    identity: Identity = NO_IDENTITY


class Unfenced(ProtocolState):
    """Nothing owned yet. -> Ready; refused: -> Fenced, -> Stopped."""


class Ready(ProtocolState):
    """An identity that no attempt has used. -> Open."""


class Open(ProtocolState):
    """An attempt runs: writers may produce. -> Recorded, -> Failed, -> Aborting."""


class Recorded(ProtocolState):
    """The ledger record is in the transaction. -> Committing, -> Failed, -> Aborting."""


class Failed(ProtocolState):
    """This attempt must not commit. -> Aborting."""


class Committing(ProtocolState):
    """EndTxn(commit) may have left. -> Ready, under TV1 -> EpochUsed; no conclusion: -> InDoubt."""


class InDoubt(ProtocolState):
    """Committed or not. After an init with (id, epoch): -> AwaitingLedger, -> FenceUnclear."""


class AwaitingLedger(ProtocolState):
    """New identity, nothing open: the ledger can be read and its word is final, on an attempt in
    doubt and on who else was there. -> Ready."""


class Aborting(ProtocolState):
    """EndTxn(abort) may have left. -> Ready; TV1, or refused: -> Renewing."""


class EpochUsed(ProtocolState):
    """TV1: committed, and its epoch is used up. -> Renewing."""


class Renewing(ProtocolState):
    """An init with (id, epoch) asks for a new epoch, which also tells our own time-out (it is
    granted) from a newer owner (it is not). -> Ready, -> FenceUnclear, -> Stopped.

    With another producer id: -> AwaitingLedger. Our epochs ran out, or the broker has forgotten the
    transactional id, and with it who owned it since: the answer is the same."""


class FenceUnclear(ProtocolState):
    """Refused as fenced, perhaps because of this process's own init (`ownership_check`). If there
    is no newer owner, an init with the identity that the coordinator has. -> AwaitingLedger,
    -> Stopped."""


class Fenced(ProtocolState):
    """Final: a newer owner holds the transactional id."""


class Stopped(ProtocolState):
    """Final: refused for good, or answered with what can't be."""


STATES: Final = tuple(ProtocolState.__subclasses__())
COMMANDS: Final = tuple(set(ProtocolEvent) - {ProtocolEvent.GAVE_UP, ProtocolEvent.ROTATED})
