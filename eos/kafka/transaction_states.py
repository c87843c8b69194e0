"""The states that a transaction can have at its coordinator.

This mirrors Kafka's TransactionState. DescribeTransactions and the coordinator's log use these
names. The audit table records a transaction's outcome as `CompleteCommit` or `CompleteAbort`.
"""

from __future__ import annotations

from enum import Enum


class TransactionPhase(Enum):
    """State of a transaction at its coordinator.

    Under transaction version 2, EndTxn(abort) is also valid without an open transaction. A client
    that does not know the state sends EndTxn(abort) and gets the next epoch."""

    # Next: Ongoing, if a partition or a group is added; PrepareAbort, by EndTxn(abort) of TV2
    EMPTY = "Empty"
    # Next: Ongoing, if another partition or group is added; PrepareCommit, by EndTxn(commit);
    # PrepareAbort, by EndTxn(abort) or the timeout; PrepareEpochFence, if an InitProducerId fences
    # the owner
    ONGOING = "Ongoing"
    # Next: only CompleteCommit, after the markers are written
    PREPARE_COMMIT = "PrepareCommit"
    # Next: only CompleteAbort, after the markers are written
    PREPARE_ABORT = "PrepareAbort"
    # Next: Ongoing (a new transaction), Empty (an InitProducerId), PrepareAbort (TV2), Dead
    COMPLETE_COMMIT = "CompleteCommit"
    # Next: Ongoing (a new transaction), Empty (an InitProducerId), PrepareAbort (TV2), Dead
    COMPLETE_ABORT = "CompleteAbort"
    # The transactional id expired, and the coordinator removes it next
    DEAD = "Dead"
    # Next: PrepareAbort, with a higher epoch
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def of(cls, name: str) -> TransactionPhase | None:
        """Return the state with this name of Kafka; None for an unknown name."""
        return _BY_NAME.get(name)

    @property
    def is_over(self) -> bool:
        """Return whether no transaction is in progress: Empty, CompleteCommit or CompleteAbort.

        Only in these states may the transactional id expire."""
        return self in OVER


_BY_NAME = {state.value: state for state in TransactionPhase}
_S = TransactionPhase
OVER = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
