"""Which states can a transaction have at its coordinator, and which transitions are valid?

This mirrors Kafka's TransactionState. DescribeTransactions and the coordinator's log use these
names. Rows of the audit table contain the two states of a completed transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class TransactionPhase(Enum):
    """State of a transaction at its coordinator.

    Under transaction version 2, EndTxn(abort) is also valid without an open transaction. A client
    that does not know the state sends EndTxn(abort) and gets the next epoch."""

    # -> Ongoing: a partition or a group was added. -> PrepareAbort: EndTxn(abort) of TV2
    EMPTY = "Empty"
    # -> Ongoing: another partition or group was added.
    # -> PrepareCommit, PrepareAbort: EndTxn, or its timeout.
    # -> PrepareEpochFence: an InitProducerId fences the owner of the open transaction
    ONGOING = "Ongoing"
    # -> CompleteCommit: the markers are written. This is the only transition
    PREPARE_COMMIT = "PrepareCommit"
    # -> CompleteAbort: the markers are written
    PREPARE_ABORT = "PrepareAbort"
    # -> Ongoing, Empty (an InitProducerId), PrepareAbort (TV2), Dead
    COMPLETE_COMMIT = "CompleteCommit"
    # -> Ongoing, Empty (an InitProducerId), PrepareAbort (TV2), Dead
    COMPLETE_ABORT = "CompleteAbort"
    # The transactional id expired, and the coordinator removes it next
    DEAD = "Dead"
    # -> PrepareAbort, with the raised epoch
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def of(cls, name: str) -> TransactionPhase | None:
        """Return the state with Kafka's name; None if this release does not know the name."""
        return _BY_NAME.get(name)

    @property
    def is_over(self) -> bool:
        """Return whether the transaction is complete. Then the transactional id may expire."""
        return self in OVER


_BY_NAME = {state.value: state for state in TransactionPhase}
_S = TransactionPhase
OVER = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

# The valid previous states of each state.
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
