"""The simulated coordinators: transactions by their id, and groups with pending offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eos.kafka.api import (
    NO_IDENTITY,
    CommittedOffset,
    Identity,
    IdentityAnswer,
    TopicPartition,
    TransactionProfile,
)
from eos.kafka.transaction_states import OVER
from eos.kafka.transaction_states import TransactionPhase as Phase

UNKNOWN_SERVER_ERROR = -1
INVALID_REQUEST, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 42, 48, 49
INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED = 50, 51, 90
EPOCH_LAST = 32_766  # the last one that a client gets; one more is kept for fencing it
NO_EPOCH = -1
_PREPARED = frozenset({Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT})
# The valid previous states of each state, as in Kafka's TransactionState.
PREDECESSORS: Mapping[Phase, frozenset[Phase]] = {
    Phase.EMPTY: OVER,
    Phase.ONGOING: OVER | {Phase.ONGOING},
    Phase.PREPARE_COMMIT: frozenset({Phase.ONGOING}),
    Phase.PREPARE_ABORT: OVER | {Phase.ONGOING, Phase.PREPARE_EPOCH_FENCE},
    Phase.COMPLETE_COMMIT: frozenset({Phase.PREPARE_COMMIT}),
    Phase.COMPLETE_ABORT: frozenset({Phase.PREPARE_ABORT}),
    Phase.DEAD: OVER,
    Phase.PREPARE_EPOCH_FENCE: frozenset({Phase.ONGOING}),
}


@dataclass(slots=True)
class Transaction:
    """The coordinator's memory of one transactional id."""

    identity: Identity
    timeout_ms: int
    last_epoch: int = NO_EPOCH  # the caller's epoch before this one, if it was the same caller
    former_id: int = -1
    next_id: int = -1  # allocated while the last epoch of `identity` ends
    phase: Phase = Phase.EMPTY
    version: TransactionProfile = TransactionProfile.TV1  # of the request that ended it
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    started_ms: int = -1

    def enter(self, phase: Phase) -> None:
        assert self.phase in PREDECESSORS[phase], f"{self.phase.value} -> {phase.value}"
        self.phase = phase

    @property
    def is_exhausted(self) -> bool:
        return self.identity.epoch >= EPOCH_LAST


Marker = Callable[[Transaction, Identity, bool], None]


class Transactions:
    """All transactional ids. `mark` writes a transaction's end into its partitions and groups."""

    def __init__(self, server: TransactionProfile, timeout_max_ms: int, mark: Marker) -> None:
        self.by_name: dict[str, Transaction] = {}
        self.markers_are_held = False
        self._server = server
        self._timeout_max_ms = timeout_max_ms
        self._mark = mark
        self._producer_ids = iter(range(1000, 2**62))

    def init(self, name: str, timeout_ms: int, expected: Identity) -> IdentityAnswer:
        is_half = (expected.producer_id < 0) != (expected.epoch < 0)
        if not name or is_half:
            return IdentityAnswer(INVALID_REQUEST)
        if not 0 < timeout_ms <= self._timeout_max_ms:
            return IdentityAnswer(INVALID_TRANSACTION_TIMEOUT)
        found = self.by_name.get(name)
        if found is None:
            fresh = Identity(next(self._producer_ids), NO_EPOCH)
            found = self.by_name[name] = Transaction(fresh, timeout_ms)
        if found.phase in _PREPARED:
            return IdentityAnswer(CONCURRENT_TRANSACTIONS)
        if expected != NO_IDENTITY and not _may_init(found, expected):
            return IdentityAnswer(PRODUCER_FENCED)
        if found.phase is Phase.ONGOING:
            # The epoch is not compared here: it is after the abort, when the caller asks again.
            self._fence(found)
            return IdentityAnswer(CONCURRENT_TRANSACTIONS)
        error = self._next_identity(found, expected)
        if error:
            return IdentityAnswer(error)
        found.timeout_ms = timeout_ms
        found.partitions.clear()
        found.groups.clear()
        found.version = TransactionProfile.TV1
        found.enter(Phase.EMPTY)
        return IdentityAnswer(0, found.identity)

    def _next_identity(self, found: Transaction, expected: Identity) -> int:
        producer_id, epoch = found.identity
        is_blank = expected == NO_IDENTITY
        if found.is_exhausted and (is_blank or expected.epoch == epoch):
            found.former_id = producer_id
            found.identity = Identity(next(self._producer_ids), 0)
            found.last_epoch = NO_EPOCH if is_blank else epoch
            return 0
        if found.is_exhausted:
            return UNKNOWN_SERVER_ERROR
        if is_blank or epoch in {NO_EPOCH, expected.epoch}:
            found.identity = Identity(producer_id, epoch + 1)
            found.last_epoch = NO_EPOCH if is_blank else epoch
        elif expected.epoch != found.last_epoch:
            return PRODUCER_FENCED
        return 0

    def _fence(self, found: Transaction) -> None:
        """Ends a transaction that its owner didn't end: a time-out, or an init."""
        found.enter(Phase.PREPARE_EPOCH_FENCE)
        if self._server is TransactionProfile.TV1:
            found.identity = Identity(found.identity.producer_id, found.identity.epoch + 1)
            found.last_epoch = NO_EPOCH
        self._prepare(found, Phase.PREPARE_ABORT, self._server)

    def check(self, name: str, identity: Identity) -> tuple[Transaction | None, int]:
        """What every request inside a transaction is asked first."""
        found = self.by_name.get(name)
        if found is not None and found.phase in _PREPARED:
            return None, CONCURRENT_TRANSACTIONS
        if found is None or found.identity.producer_id != identity.producer_id:
            return None, INVALID_PRODUCER_ID_MAPPING
        if found.identity.epoch != identity.epoch:
            return None, PRODUCER_FENCED
        return found, 0

    def add(
        self,
        name: str,
        identity: Identity,
        now_ms: int,
        *,
        partition: TopicPartition | None = None,
        group: str | None = None,
    ) -> int:
        found, error = self.check(name, identity)
        if found is None:
            return error
        if found.phase is not Phase.ONGOING:
            found.started_ms = now_ms
            found.enter(Phase.ONGOING)
        if partition is not None:
            found.partitions.add(partition)
        if group is not None:
            found.groups.add(group)
        return 0

    def end(
        self, name: str, identity: Identity, commit: bool, profile: TransactionProfile
    ) -> IdentityAnswer:
        found = self.by_name.get(name)
        if found is None:
            return IdentityAnswer(INVALID_PRODUCER_ID_MAPPING)
        if profile is TransactionProfile.TV1:
            return self._end_by_state(found, identity, commit)
        return self._end_by_epoch(found, identity, commit)

    def _end_by_state(self, found: Transaction, identity: Identity, commit: bool) -> IdentityAnswer:
        """TV1: the epoch stays, so a repeated request is known by the state alone."""
        if found.identity.producer_id != identity.producer_id:
            return IdentityAnswer(INVALID_PRODUCER_ID_MAPPING)
        if found.identity.epoch != identity.epoch:
            return IdentityAnswer(PRODUCER_FENCED)
        if found.phase is Phase.ONGOING:
            phase = Phase.PREPARE_COMMIT if commit else Phase.PREPARE_ABORT
            self._prepare(found, phase, TransactionProfile.TV1)
            return IdentityAnswer(0, identity)
        return IdentityAnswer(_end_again(found.phase, commit), identity)

    def _end_by_epoch(self, found: Transaction, identity: Identity, commit: bool) -> IdentityAnswer:
        """TV2: each end bumps, so the epoch below the current one marks a repeated request."""
        is_again = found.version is TransactionProfile.TV2 and (
            found.identity == Identity(identity.producer_id, identity.epoch + 1)
            or (
                (found.former_id, EPOCH_LAST) == identity
                and found.identity.epoch == 0
                and found.phase not in _PREPARED
            )
        )
        if found.identity.producer_id != identity.producer_id and not is_again:
            return IdentityAnswer(INVALID_PRODUCER_ID_MAPPING)
        is_current = found.identity == identity
        if found.phase is Phase.ONGOING and is_current:
            phase = Phase.PREPARE_COMMIT if commit else Phase.PREPARE_ABORT
            return self._prepare(found, phase, TransactionProfile.TV2)
        if found.phase in OVER and is_current:
            if commit:
                return IdentityAnswer(INVALID_TXN_STATE)
            return self._prepare(found, Phase.PREPARE_ABORT, TransactionProfile.TV2)
        if not is_again or found.phase in {Phase.EMPTY, Phase.ONGOING}:
            return IdentityAnswer(PRODUCER_FENCED)
        error = _end_again(found.phase, commit)
        return IdentityAnswer(error, NO_IDENTITY if error else found.identity)

    def _prepare(
        self, found: Transaction, phase: Phase, version: TransactionProfile
    ) -> IdentityAnswer:
        """The decision. From here on only the markers are outstanding."""
        found.enter(phase)
        found.version = version
        producer_id, epoch = found.identity
        if version is TransactionProfile.TV2:
            if epoch >= EPOCH_LAST:
                found.next_id = next(self._producer_ids)
            found.last_epoch = epoch
            found.identity = Identity(producer_id, epoch + 1)
        answer = found.identity if found.next_id < 0 else Identity(found.next_id, 0)
        if not self.markers_are_held:
            self.complete(found)
        return IdentityAnswer(0, answer)

    def complete(self, found: Transaction) -> None:
        """Writes the markers, which makes the records visible or void."""
        is_commit = found.phase is Phase.PREPARE_COMMIT
        self._mark(found, found.identity, is_commit)
        if found.next_id >= 0:
            found.former_id, found.identity = found.identity.producer_id, Identity(found.next_id, 0)
            found.next_id = -1
        found.partitions.clear()
        found.groups.clear()
        found.enter(Phase.COMPLETE_COMMIT if is_commit else Phase.COMPLETE_ABORT)

    def release_markers(self) -> None:
        self.markers_are_held = False
        for found in self.by_name.values():
            if found.phase in _PREPARED:
                self.complete(found)

    def abort_timed_out(self, now_ms: int) -> None:
        """The time counts from the first partition added, whatever was written since."""
        for found in self.by_name.values():
            is_late = found.started_ms + found.timeout_ms <= now_ms
            if found.phase is Phase.ONGOING and is_late:
                self._fence(found)

    def expire(self, name: str) -> None:
        """An idle transactional id is forgotten (transactional.id.expiration.ms)."""
        found = self.by_name[name]
        found.enter(Phase.DEAD)
        del self.by_name[name]


def _may_init(found: Transaction, expected: Identity) -> bool:
    """The producer id must be ours, or have been until its epochs ran out (KIP-360)."""
    return (
        found.identity.epoch == NO_EPOCH
        or expected.producer_id == found.identity.producer_id
        or (expected.producer_id == found.former_id and expected.epoch >= EPOCH_LAST)
    )


def _end_again(phase: Phase, commit: bool) -> int:
    """EndTxn without an open transaction: the same end again is fine, another is not."""
    same = {Phase.COMPLETE_COMMIT: True, Phase.COMPLETE_ABORT: False}
    running = {Phase.PREPARE_COMMIT: True, Phase.PREPARE_ABORT: False}
    if same.get(phase) is commit:
        return 0
    return CONCURRENT_TRANSACTIONS if running.get(phase) is commit else INVALID_TXN_STATE


OFFSET_METADATA_TOO_LARGE, METADATA_BYTES_MAX = 12, 4096


class Group:
    """One group. Nobody is ever a member of it."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        self._epochs: dict[int, int] = {}
        self._pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    def is_fenced(self, identity: Identity) -> bool:
        return identity.epoch < self._epochs.get(identity.producer_id, -1)

    def has_pending(self, identity: Identity) -> bool:
        """Then the coordinator is not asked again, as with a partition of records."""
        is_open = identity.producer_id in self._pending
        return is_open and self._epochs.get(identity.producer_id) == identity.epoch

    def note(self, identity: Identity, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._epochs[identity.producer_id] = identity.epoch
        self._pending.setdefault(identity.producer_id, {}).update(offsets)

    def mark(self, identity: Identity, is_commit: bool) -> None:
        """The last commit before the marker wins, whoever made it."""
        self._epochs[identity.producer_id] = identity.epoch
        ended = self._pending.pop(identity.producer_id, {})
        if is_commit:
            self.committed.update(ended)
