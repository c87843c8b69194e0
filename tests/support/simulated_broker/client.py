"""A client of the simulated broker: the port that the transaction code uses. Faults strike here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from eos.deadline import Deadline
from eos.errors import NoAnswerError
from eos.kafka.api import (
    Answer,
    Api,
    CommittedOffset,
    DescribedTransaction,
    Identity,
    IdentityAnswer,
    ProduceAnswer,
    TopicPartition,
    TransactionProfile,
)
from support.simulated_broker.simulated import SimulatedBroker, Strike

LATE_MAX = 16  # requests that wait for `deliver_late`

T = TypeVar("T")


class SimulatedPort:
    """One client's connection: a `TransactionPort`. Faults strike here."""

    def __init__(self, broker: SimulatedBroker, profile: TransactionProfile) -> None:
        self._broker = broker
        self._profile = profile

    @property
    def profile(self) -> TransactionProfile:
        return self._profile

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, identity: Identity, deadline: Deadline
    ) -> IdentityAnswer:
        init = self._broker.transactions.init
        return self._ask(
            deadline,
            Api.INIT_PRODUCER_ID,
            partial(init, transactional_id, timeout_ms, identity),
            IdentityAnswer,
        )

    def add_partitions(
        self,
        transactional_id: str,
        identity: Identity,
        partitions: frozenset[TopicPartition],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, Answer]:
        return self._ask(
            deadline,
            Api.ADD_PARTITIONS,
            partial(self._broker.add_partitions, transactional_id, identity, partitions),
            lambda code: {at: Answer(code) for at in partitions},
        )

    def add_offsets(
        self, transactional_id: str, identity: Identity, group: str, deadline: Deadline
    ) -> Answer:
        add = self._broker.add_offsets
        return self._ask(
            deadline, Api.ADD_OFFSETS, partial(add, transactional_id, identity, group), Answer
        )

    def produce(
        self,
        transactional_id: str,
        record_batches: Mapping[TopicPartition, bytes],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, ProduceAnswer]:
        sent = dict(record_batches)
        return self._ask(
            deadline,
            Api.PRODUCE,
            partial(self._broker.produce, self._profile, transactional_id, sent),
            lambda code: {at: ProduceAnswer(code) for at in sent},
        )

    def commit_offsets(
        self,
        transactional_id: str,
        identity: Identity,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, Answer]:
        sent = dict(offsets)
        commit = self._broker.commit_offsets
        return self._ask(
            deadline,
            Api.TXN_OFFSET_COMMIT,
            partial(commit, self._profile, transactional_id, identity, group, sent),
            lambda code: {at: Answer(code) for at in sent},
        )

    def end_txn(
        self,
        transactional_id: str,
        identity: Identity,
        commit: bool,
        deadline: Deadline,
        *,
        on_sent: Callable[[], None] | None = None,
    ) -> IdentityAnswer:
        if on_sent is not None and not deadline.has_passed:
            on_sent()
        end = self._broker.transactions.end
        request = partial(end, transactional_id, identity, commit, self._profile)
        return self._ask(deadline, Api.END_TXN, request, IdentityAnswer)

    def transaction_state(self, transactional_id: str, _deadline: Deadline) -> DescribedTransaction:
        found = self._broker.transactions.by_name[transactional_id]
        return DescribedTransaction(found.phase.value, found.identity, found.timeout_ms)

    def forget_coordinators(self) -> None:
        """There is one broker, and it does not move."""

    def _ask(
        self, deadline: Deadline, api: Api, request: Callable[[], T], refusal: Callable[[int], T]
    ) -> T:
        if deadline.has_passed:
            raise NoAnswerError("example", f"{api.value}: the deadline passed before it was sent")
        fault = self._broker.faults.strike(api)
        if fault is None:
            return request()
        strike = fault.strike
        if strike is Strike.ANSWER:
            return refusal(fault.code)
        if strike in {Strike.DELAY_REQUEST, Strike.REPEAT_LATER}:
            assert len(self._broker.late) < LATE_MAX, "deliver_late was never called"
            self._broker.late.append(request)
        if strike in {Strike.LOSE_REQUEST, Strike.DELAY_REQUEST}:
            raise NoAnswerError("example", f"{api.value}: {strike.value}")
        answer = request()
        if strike is Strike.LOSE_ANSWER:
            raise NoAnswerError("example", f"{api.value}: {strike.value}")
        return refusal(fault.code) if strike is Strike.CARRY_OUT_AND_ANSWER else answer
