"""Send a transaction's requests to a real cluster.

`kafka.client.KafkaClient` inherits them. Each request is sent once: `transaction.protocol` decides
what follows an answer, and what follows none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from eos.deadline import Deadline
from eos.errors import UnavailableError, UsageError
from eos.kafka import requests, transactions
from eos.kafka.api import (
    Answer,
    CommittedOffset,
    DescribedTransaction,
    Identity,
    IdentityAnswer,
    ProduceAnswer,
    TopicPartition,
    TransactionProfile,
)
from eos.kafka.cluster import Cluster, Kind, NoCoordinatorError, not_sent
from eos.kafka.connection import Connections
from eos.kafka.pending_produce import PendingProduce
from eos.kafka.requests import VERSIONS, Blob, Versions
from eos.kafka.settings import KafkaSettings
from eos.kafka.transactions import ListedTransaction

_A = TypeVar("_A", Answer, IdentityAnswer)

_COORDINATOR_MOVED = frozenset({15, 16})


class TransactionClient:
    """The requests of transactions, which need a transaction profile."""

    settings: KafkaSettings
    _profile: TransactionProfile | None
    _connections: Connections
    _cluster: Cluster

    @property
    def profile(self) -> TransactionProfile:
        if self._profile is None:
            raise UsageError(
                "no_transaction_profile",
                "this client has not agreed with the cluster on a version of transactions",
                hint="call `agree_on_profile` first",
            )
        return self._profile

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, identity: Identity, deadline: Deadline
    ) -> IdentityAnswer:
        request = requests.init_producer_id(
            self._versions.init_producer_id, transactional_id, timeout_ms, identity
        )
        try:
            response = self._send(Kind.TRANSACTION, transactional_id, request, deadline)
        except NoCoordinatorError as error:
            return IdentityAnswer(error.error, message=error.message)
        return self._checked(requests.initialised(response))

    def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: frozenset[TopicPartition],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, Answer]:
        request = requests.add_partitions(
            self._versions.add_partitions, transactional_id, identity, partitions
        )
        try:
            response = self._send(Kind.TRANSACTION, transactional_id, request, deadline)
        except NoCoordinatorError as error:
            return dict.fromkeys(partitions, Answer(error.error, error.message))
        answers = requests.partitions_added(response)
        for answer in answers.values():
            self._checked(answer)
        return answers

    def add_offsets(
        self, transactional_id: str, identity: Identity, group: str, deadline: Deadline
    ) -> Answer:
        request = requests.add_offsets(
            self._versions.add_offsets, transactional_id, identity, group
        )
        try:
            response = self._send(Kind.TRANSACTION, transactional_id, request, deadline)
        except NoCoordinatorError as error:
            return Answer(error.error, error.message)
        return self._checked(Answer(response.error_code))

    def produce(
        self,
        transactional_id: str,
        record_batches: Mapping[TopicPartition, Blob],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, ProduceAnswer]:
        try:
            leaders = self._cluster.leaders(frozenset(record_batches), deadline)
        except UnavailableError as unavailable:
            raise not_sent("Produce", unavailable.message) from unavailable
        timeout_ms = deadline.at_most_ms(self.settings.request_timeout_ms)
        sent = [
            self.send_produce(
                leader,
                transactional_id,
                {tp: blob for tp, blob in record_batches.items() if leaders[tp] == leader},
                timeout_ms,
            )
            for leader in sorted(set(leaders.values()))
        ]
        answers = {tp: answer for one in sent for tp, answer in one.wait(deadline).items()}
        if any(answer.error for answer in answers.values()):
            self._cluster.forget_leaders()  # a retry must look up the current leaders
        return answers

    def send_produce(
        self,
        leader: int,
        transactional_id: str,
        record_batches: Mapping[TopicPartition, Blob],
        timeout_ms: int,
        after: PendingProduce | None = None,
    ) -> PendingProduce:
        """Send one record batch per partition with acks=all. Don't wait for the answer.

        The broker `leader` must lead all these partitions. Requests to one broker are sent in the
        order of these calls. If the request `after` failed, this request fails without being sent.
        """
        # The broker's timeout is shorter than the client's. So REQUEST_TIMED_OUT arrives before
        # the client's timeout, which would close the connection.
        request = requests.produce(
            self._versions.produce, transactional_id, record_batches, timeout_ms * 9 // 10
        )
        pending = self._connections.submit(
            leader, request, Deadline.after_ms(timeout_ms), after.pending if after else None
        )
        return PendingProduce(pending, tuple(record_batches), self._cluster)

    def commit_offsets(
        self,
        transactional_id: str,
        identity: Identity,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, Answer]:
        request = requests.commit_offsets(
            self._versions.txn_offset_commit, transactional_id, identity, group, offsets
        )
        try:
            response = self._send(Kind.GROUP, group, request, deadline)
        except NoCoordinatorError as error:
            return dict.fromkeys(offsets, Answer(error.error, error.message))
        answers = requests.offsets_committed(response, offsets)
        for answer in answers.values():
            self._checked(answer)
        return answers

    def end_txn(
        self,
        transactional_id: str,
        identity: Identity,
        commit: bool,
        deadline: Deadline,
        *,
        on_sent: Callable[[], None] | None = None,
    ) -> IdentityAnswer:
        request = requests.end_txn(self._versions.end_txn, transactional_id, identity, commit)
        try:
            response = self._send(Kind.TRANSACTION, transactional_id, request, deadline, on_sent)
        except NoCoordinatorError as error:
            return IdentityAnswer(error.error, message=error.message)
        return self._checked(requests.ended(response, identity))

    def transaction_state(self, transactional_id: str, deadline: Deadline) -> DescribedTransaction:
        return transactions.transaction_state(self._cluster, transactional_id, deadline)

    def list_transactions(self, deadline: Deadline) -> Sequence[ListedTransaction]:
        """Return the transactions of all coordinators that this user may describe."""
        return transactions.list_transactions(self._cluster, deadline)

    def forget_coordinators(self) -> None:
        self._cluster.forget_coordinators()

    @property
    def _versions(self) -> Versions:
        return VERSIONS[self.profile]

    def _send(
        self,
        kind: Kind,
        key: str,
        request: Any,
        deadline: Deadline,
        on_sent: Callable[[], None] | None = None,
    ) -> Any:
        return self._cluster.send_once(
            lambda: self._cluster.coordinator(kind, key, deadline),
            lambda: request,
            deadline,
            on_sent,
        )

    def _checked(self, answer: _A) -> _A:
        """Return the answer. If its error means that a coordinator moved, forget the cached one."""
        if answer.error in _COORDINATOR_MOVED:
            self._cluster.forget_coordinators()
        return answer
