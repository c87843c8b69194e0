"""The requests of a Kafka transaction and their answers, as an interface: `TransactionPort`.

Two classes implement it: `kafka.client.KafkaClient` for a real cluster, and the simulated broker of
the tests. A method returns Kafka's error code and does not react to it. `kafka.outcomes` maps a
code to its meaning, and `transaction.protocol` decides the reaction. A request without an answer
raises `NoAnswerError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from eos.deadline import Deadline


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Identity(NamedTuple):
    """A producer id and its epoch. Each try to write a micro-batch has an identity of its own."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}/{self.epoch}"


NO_IDENTITY = Identity(-1, -1)


class TransactionProfile(Enum):
    """Version of Kafka's transaction protocol. It fixes the API version of every request.

    TV2 requires that the cluster's finalized `transaction.version` is at least 2. TV1 is correct on
    every cluster whose brokers verify partitions (KIP-890)."""

    TV1 = 1
    TV2 = 2


class Api(Enum):
    """The requests of a transaction, by Kafka's names."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    PRODUCE = "Produce"
    ADD_OFFSETS = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    END_TXN = "EndTxn"


class Answer(NamedTuple):
    """The broker's answer to a request: Kafka's error code (0: success), and its message if any."""

    error: int
    message: str = ""


class IdentityAnswer(NamedTuple):
    """Answer to InitProducerId or EndTxn, with the identity to use from now on.

    After an error, the identity is `NO_IDENTITY`."""

    error: int
    identity: Identity = NO_IDENTITY
    message: str = ""


class ProduceAnswer(NamedTuple):
    error: int
    offset: int = -1
    message: str = ""


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str = ""


class DescribedTransaction(NamedTuple):
    """State of a transactional id at its coordinator (DescribeTransactions)."""

    phase: str  # as Kafka's tools spell it, such as "CompleteAbort"
    identity: Identity
    timeout_ms: int  # the timeout of the last InitProducerId that the coordinator granted


@dataclass(frozen=True, slots=True)
class DescribedProducer:
    """State of a producer at the leader of a partition (DescribeProducers)."""

    identity: Identity
    sequence_last: int  # -1: the leader has no record batch of this epoch
    transaction_start_offset: int  # -1: no open transaction in this partition
    coordinator_epoch: int = -1  # of the last marker; -1 without one
    last_ms: int = -1  # timestamp of the last record batch or marker


class TransactionPort(Protocol):
    """A client that sends the requests of transactions, all with one transaction profile."""

    @property
    def profile(self) -> TransactionProfile: ...

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, identity: Identity, deadline: Deadline
    ) -> IdentityAnswer:
        """Return a new identity for a transactional id.

        With `NO_IDENTITY`, fence the current owner of the id. With any other identity, the request
        succeeds only if that identity is still the current one (KIP-360).
        """

    def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: frozenset[TopicPartition],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, Answer]:
        """Add partitions to the transaction. TV1 only: under TV2 the first Produce does this."""

    def add_offsets(
        self, transactional_id: str, identity: Identity, group: str, deadline: Deadline
    ) -> Answer:
        """Add a consumer group to the transaction. TV1 only: under TV2 `commit_offsets` does it."""

    def produce(
        self,
        transactional_id: str,
        record_batches: Mapping[TopicPartition, bytes],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, ProduceAnswer]:
        """Write one record batch per partition with acks=all. The partitions may have different
        leaders."""

    def commit_offsets(
        self,
        transactional_id: str,
        identity: Identity,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, Answer]: ...

    def end_txn(
        self,
        transactional_id: str,
        identity: Identity,
        commit: bool,
        deadline: Deadline,
        *,
        on_sent: Callable[[], None] | None = None,
    ) -> IdentityAnswer:
        """Commit or abort the transaction.

        TV2 returns the next identity, TV1 returns the given identity. `on_sent` is called after the
        request was sent and before its answer is processed. Crash tests need this hook.
        """

    def transaction_state(self, transactional_id: str, deadline: Deadline) -> DescribedTransaction:
        """Return the coordinator's state of a transactional id. Raise EosError if it is unknown."""

    def forget_coordinators(self) -> None:
        """Forget all coordinators, so that the next request looks its coordinator up again.

        Call it after COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR."""
