"""The simulated broker: what a test sees and arms, and the rules of the requests inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from eos.kafka.api import (
    Answer,
    Api,
    CommittedOffset,
    DescribedProducer,
    Identity,
    ProduceAnswer,
    TopicPartition,
    TransactionProfile,
)
from eos.kafka.transaction_states import TransactionPhase as Phase
from support.simulated_broker.log import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    Entry,
    Header,
    Kind,
    PartitionLog,
    parse,
)
from support.simulated_broker.transactions import (
    CONCURRENT_TRANSACTIONS,
    METADATA_BYTES_MAX,
    OFFSET_METADATA_TOO_LARGE,
    PRODUCER_FENCED,
    Group,
    Transaction,
    Transactions,
)


class Strike(Enum):
    LOSE_REQUEST = "the request never arrives"
    DELAY_REQUEST = "no answer; the request arrives when `deliver_late` says so"
    LOSE_ANSWER = "carried out, but no answer comes"
    REPEAT_LATER = "carried out and answered, and carried out again at `deliver_late`"
    ANSWER = "not carried out: answered with `code`"
    CARRY_OUT_AND_ANSWER = "carried out, yet answered with `code`"


@dataclass(frozen=True, slots=True)
class Fault:
    api: Api
    strike: Strike
    nth: int = 1  # counted from the moment it is armed
    code: int = 0
    times: int = 1  # strikes this many requests in a row, from the n-th on


class Faults:
    """The armed faults. A test asserts that `hit` holds what it armed."""

    def __init__(self) -> None:
        self.hit: list[Fault] = []
        self._armed: list[tuple[Fault, list[int]]] = []  # with the number of requests seen since

    def arm(self, fault: Fault) -> None:
        self._armed.append((fault, [0]))

    def disarm(self) -> None:
        self._armed.clear()

    @property
    def is_armed(self) -> bool:
        return bool(self._armed)

    def strike(self, api: Api) -> Fault | None:
        """What happens to this request: the first armed fault that is due."""
        due = None
        for fault, seen in list(self._armed):
            if fault.api is not api:
                continue
            seen[0] += 1
            if due is None and fault.nth <= seen[0] < fault.nth + fault.times:
                due = fault
                self.hit.append(fault)
            if seen[0] >= fault.nth + fault.times - 1:
                self._armed.remove((fault, seen))
        return due


UNKNOWN_TOPIC_OR_PARTITION, NOT_ENOUGH_REPLICAS = 3, 19
INVALID_TXN_STATE, OPERATION_NOT_ATTEMPTED = 48, 55


class SimulatedBroker:
    """Topics, groups and transactional ids of one cluster.

    `server` is the cluster's own transaction version: it decides how the broker ends what a client
    left open. Clients bring their own.
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        server: TransactionProfile = TransactionProfile.TV2,
        transaction_timeout_max_ms: int = 900_000,
    ) -> None:
        self.faults = Faults()
        self.now_ms = 0
        self.logs = {
            TopicPartition(topic, number): PartitionLog()
            for topic, count in topics.items()
            for number in range(count)
        }
        self.groups: dict[str, Group] = {}
        self.transactions = Transactions(server, transaction_timeout_max_ms, self._mark)
        self.late: list[Callable[[], object]] = []

    # --- what a test sees and does --------------------------------------------------------------

    def arm(self, fault: Fault) -> None:
        self.faults.arm(fault)

    def advance(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.transactions.abort_timed_out(self.now_ms)

    def hold_markers(self) -> None:
        """Decisions are made, but not carried into the partitions: 51 until `release_markers`."""
        self.transactions.markers_are_held = True

    def release_markers(self) -> None:
        self.transactions.release_markers()

    def deliver_late(self) -> int:
        """Carries out every delayed and repeated request, in the order they were sent."""
        late, self.late = self.late, []
        for request in late:
            request()
        return len(late)

    def expire(self, transactional_id: str) -> None:
        self.transactions.expire(transactional_id)

    def phase(self, transactional_id: str) -> Phase:
        return self.transactions.by_name[transactional_id].phase

    def read_committed(self, at: TopicPartition) -> list[Entry]:
        return self.logs[at].read_committed()

    def read_uncommitted(self, at: TopicPartition) -> list[Entry]:
        return self.logs[at].read_uncommitted()

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._group(group).committed

    def describe_producers(self, at: TopicPartition) -> Mapping[int, DescribedProducer]:
        return self.logs[at].producers()

    # --- the rules ------------------------------------------------------------------------------

    def _group(self, name: str) -> Group:
        return self.groups.setdefault(name, Group())

    def _mark(self, transaction: Transaction, identity: Identity, is_commit: bool) -> None:
        for at in sorted(transaction.partitions):
            self.logs[at].mark(identity, Kind.COMMIT if is_commit else Kind.ABORT)
        for name in sorted(transaction.groups):
            self._group(name).mark(identity, is_commit)

    def add_partitions(
        self, name: str, identity: Identity, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, Answer]:
        """All or nothing."""
        if any(at not in self.logs for at in partitions):
            return {
                at: Answer(
                    OPERATION_NOT_ATTEMPTED if at in self.logs else UNKNOWN_TOPIC_OR_PARTITION
                )
                for at in partitions
            }
        error = 0
        for at in sorted(partitions):
            error = error or self.transactions.add(name, identity, self.now_ms, partition=at)
        return {at: Answer(error) for at in partitions}

    def add_offsets(self, name: str, identity: Identity, group: str) -> Answer:
        return Answer(self.transactions.add(name, identity, self.now_ms, group=group))

    def produce(
        self, profile: TransactionProfile, name: str, record_batches: Mapping[TopicPartition, bytes]
    ) -> dict[TopicPartition, ProduceAnswer]:
        return {at: self._append(profile, name, at, blob) for at, blob in record_batches.items()}

    def _append(
        self, profile: TransactionProfile, name: str, at: TopicPartition, blob: bytes
    ) -> ProduceAnswer:
        log = self.logs.get(at)
        if log is None:
            return ProduceAnswer(UNKNOWN_TOPIC_OR_PARTITION)
        header = parse(blob)
        if header is None:
            return ProduceAnswer(CORRUPT_MESSAGE)
        error = 0
        if not log.has_open_transaction(header.identity):
            error = self._enters(profile, name, header, at)
        if error:
            return ProduceAnswer(error)
        return ProduceAnswer(*log.append(header, blob, profile))

    def _enters(
        self, profile: TransactionProfile, name: str, header: Header, at: TopicPartition
    ) -> int:
        """The leader asks the coordinator: TV2 adds the partition, TV1 wants it added (KIP-890)."""
        if profile is TransactionProfile.TV2:
            error = self.transactions.add(name, header.identity, self.now_ms, partition=at)
            return INVALID_PRODUCER_EPOCH if error == PRODUCER_FENCED else error
        found, error = self.transactions.check(name, header.identity)
        if found is None:
            told = {
                PRODUCER_FENCED: INVALID_PRODUCER_EPOCH,
                CONCURRENT_TRANSACTIONS: NOT_ENOUGH_REPLICAS,
            }
            return told.get(error, error)
        return 0 if at in found.partitions else INVALID_TXN_STATE

    def commit_offsets(
        self,
        profile: TransactionProfile,
        name: str,
        identity: Identity,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> dict[TopicPartition, Answer]:
        refused = {
            at: Answer(error)
            for at, offset in offsets.items()
            if (error := self._refuses(at, offset))
        }
        asked = {at: offset for at, offset in offsets.items() if at not in refused}
        error = self._joins(profile, name, identity, group) if asked else 0
        if not error and asked:
            self._group(group).note(identity, asked)
        return refused | {at: Answer(error) for at in asked}

    def _refuses(self, at: TopicPartition, offset: CommittedOffset) -> int:
        if at not in self.logs:
            return UNKNOWN_TOPIC_OR_PARTITION
        is_long = len(offset.metadata.encode()) > METADATA_BYTES_MAX
        return OFFSET_METADATA_TOO_LARGE if is_long else 0

    def _joins(self, profile: TransactionProfile, name: str, identity: Identity, group: str) -> int:
        if self._group(group).has_pending(identity):
            return 0
        if profile is TransactionProfile.TV2:
            error = self.transactions.add(name, identity, self.now_ms, group=group)
        else:
            found, error = self.transactions.check(name, identity)
            if found is not None and group not in found.groups:
                error = INVALID_TXN_STATE
        if error == PRODUCER_FENCED or (not error and self._group(group).is_fenced(identity)):
            return INVALID_PRODUCER_EPOCH
        return error
