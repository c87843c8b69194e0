"""What a transaction asks of Kafka: the requests, their answers, and the port they go through.

Two things implement the port: `kafka.client.Wire` (a real cluster) and `support.simulated_broker`
(the simulated
one). Requests answer with Kafka's error codes and decide nothing; `outcomes` knows what a code
means, `protocol` what to do next. A request without an answer raises `NoAnswerError`.
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


class Identity(NamedTuple):
    """A producer id and its epoch. In this framework one attempt has one identity (rule R1)."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)


class TransactionProfile(Enum):
    """Decides every request's API version (rule R6). TV2 is only for a cluster whose finalized
    `transaction.version` says so; TV1 is right on every one that verifies partitions (KIP-890)."""

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
    """An error code (0 is none) and, where the broker sends one, its own words."""

    error: int
    message: str = ""


class IdentityAnswer(NamedTuple):
    """InitProducerId and EndTxn v5 return the identity to use from now on."""

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
    """What the coordinator knows of a transactional id (DescribeTransactions)."""

    phase: str  # as Kafka's tools print it: "CompleteAbort"
    identity: Identity
    timeout_ms: int  # what the last init that was granted asked for


@dataclass(frozen=True, slots=True)
class DescribedProducer:
    """What a partition's leader knows of a producer (DescribeProducers)."""

    identity: Identity
    sequence_last: int
    transaction_start_offset: int  # -1: no open transaction here


class TransactionPort(Protocol):
    """The requests of one transaction. The profile is fixed when the port is made."""

    @property
    def profile(self) -> TransactionProfile: ...

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, identity: Identity, deadline: Deadline
    ) -> IdentityAnswer:
        """`NO_IDENTITY` takes over from any owner; (id, epoch) only from itself (KIP-360)."""

    def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: frozenset[TopicPartition],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, Answer]:
        """TV1 only: under TV2 the first Produce adds its partition (KIP-890)."""

    def add_offsets(
        self, transactional_id: str, identity: Identity, group: str, deadline: Deadline
    ) -> Answer:
        """TV1 only: under TV2 the offset commit adds the group (KIP-890)."""

    def produce(
        self,
        transactional_id: str,
        record_batches: Mapping[TopicPartition, bytes],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, ProduceAnswer]:
        """One record batch a partition, acks=all. Partitions may have different leaders."""

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
        """TV2 answers with the next identity, TV1 with the one that was sent.

        `on_sent` is called once the request's bytes were handed to the network and before its
        answer is awaited: the one moment of a transaction that a crash test can't reach else.
        """

    def transaction_state(self, transactional_id: str, deadline: Deadline) -> DescribedTransaction:
        """Only looks. Raises EosError where there is no answer to give."""

    def forget_coordinators(self) -> None:
        """A coordinator moved (15, 16): the next request looks it up again."""
