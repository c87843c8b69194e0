"""The states in which a coordinator can have a transaction, and what each may come from: as data.

Kafka's TransactionState. The names are those of DescribeTransactions and of the log; rows of the
audit table carry the two with which a transaction is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class TransactionPhase(Enum):
    """With transaction version 2 the coordinator also aborts what is not open: a client that
    does not know sends EndTxn(abort), and gets the next epoch for it."""

    # -> Ongoing: a partition or a group was added. -> PrepareAbort: EndTxn(abort) of TV2
    EMPTY = "Empty"
    # -> Ongoing: more was added. -> PrepareCommit, PrepareAbort: EndTxn, or its timeout.
    # -> PrepareEpochFence: an InitProducerId fences the one who has it open
    ONGOING = "Ongoing"
    # -> CompleteCommit: the markers are written. Nothing else can become of it
    PREPARE_COMMIT = "PrepareCommit"
    # -> CompleteAbort: the markers are written
    PREPARE_ABORT = "PrepareAbort"
    # -> Ongoing, Empty (an InitProducerId), PrepareAbort (TV2), Dead
    COMPLETE_COMMIT = "CompleteCommit"
    # -> Ongoing, Empty (an InitProducerId), PrepareAbort (TV2), Dead
    COMPLETE_ABORT = "CompleteAbort"
    # The transactional id expired, and is about to be forgotten
    DEAD = "Dead"
    # -> PrepareAbort: with the raised epoch
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def of(cls, name: str) -> TransactionPhase | None:
        """As a broker says it; None for one that this release does not know."""
        return _BY_NAME.get(name)

    @property
    def is_over(self) -> bool:
        """Nothing of it is undecided, so the transactional id may also expire."""
        return self in OVER


_BY_NAME = {state.value: state for state in TransactionPhase}
_S = TransactionPhase
OVER = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

# Which state each may come from.
PREDECESSORS: Mapping[TransactionPhase, frozenset[TransactionPhase]] = {
    _S.EMPTY: OVER,
    _S.ONGOING: OVER | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: OVER | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: OVER,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}


def may_follow(after: TransactionPhase, before: TransactionPhase) -> bool:
    return before in PREDECESSORS[after]
