"""Send the requests of a transaction, and classify their responses.

If a response covers several partitions, the worst result decides. A retry leaves out the partitions
that succeeded. A partition that is missing from the response counts as failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from eos.deadline import Deadline
from eos.errors import EosError, NoAnswerError, UnavailableError
from eos.kafka.api import (
    NO_IDENTITY,
    Answer,
    Api,
    CommittedOffset,
    DescribedTransaction,
    Identity,
    IdentityAnswer,
    ProduceAnswer,
    TopicPartition,
    TransactionPort,
)
from eos.kafka.outcomes import Outcome, describe, outcome_of, worst
from eos.transaction.states import API_OF, Effect, RequestAnswer

# Pairs of a partition or group, and its part of the response.
_Answers = Iterable[tuple[str, Answer | IdentityAnswer | ProduceAnswer]]


@dataclass(slots=True)
class Work:
    """The record batches and group offsets that one call of the coordinator still has to send, and
    the offsets of the record batches that it wrote."""

    record_batches: dict[TopicPartition, bytes] = field(default_factory=dict)
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    written: dict[TopicPartition, int] = field(default_factory=dict)


class Requests:
    """Sends the requests of one transactional id."""

    def __init__(
        self,
        port: TransactionPort,
        transactional_id: str,
        group: str,
        timeout_ms: int,
        reached: Callable[[str], None],
    ) -> None:
        self._port = port
        self._transactional_id = transactional_id
        self._group = group
        self.timeout_ms = timeout_ms
        self._reached = reached

    def send(
        self, effect: Effect, identity: Identity, deadline: Deadline, work: Work
    ) -> tuple[RequestAnswer, EosError]:
        """Send the request of `effect`. Return the classified response, and the error to raise
        unless the request is retried."""
        try:
            return self._send(effect, identity, deadline, work)
        except NoAnswerError as error:
            return unanswered(API_OF[effect], error)

    def describe(self, deadline: Deadline) -> DescribedTransaction:
        return self._port.transaction_state(self._transactional_id, deadline)

    def _send(
        self, effect: Effect, identity: Identity, deadline: Deadline, work: Work
    ) -> tuple[RequestAnswer, EosError]:
        if effect is Effect.INIT_BLANK:
            return self._init(NO_IDENTITY, deadline)
        if effect is Effect.INIT:
            return self._init(identity, deadline)
        if effect is Effect.ADD_PARTITIONS:
            return self._add_partitions(identity, deadline, work)
        if effect is Effect.PRODUCE:
            return self._produce(deadline, work)
        if effect is Effect.ADD_OFFSETS:
            return self._add_offsets(identity, deadline)
        if effect is Effect.COMMIT_OFFSETS:
            return self._commit_offsets(identity, deadline, work)
        return self._end(identity, effect is Effect.END_COMMIT, deadline)

    def _init(self, identity: Identity, deadline: Deadline) -> tuple[RequestAnswer, EosError]:
        answer = self._port.init_producer_id(
            self._transactional_id, self.timeout_ms, identity, deadline
        )
        return self._classify(Api.INIT_PRODUCER_ID, [("", answer)], answer.identity)

    def _add_partitions(
        self, identity: Identity, deadline: Deadline, work: Work
    ) -> tuple[RequestAnswer, EosError]:
        partitions = frozenset(work.record_batches)
        return add_partitions(self._port, self._transactional_id, identity, partitions, deadline)

    def _produce(self, deadline: Deadline, work: Work) -> tuple[RequestAnswer, EosError]:
        answers = self._port.produce(self._transactional_id, work.record_batches, deadline)
        results = _by_partition(work.record_batches, answers)
        for partition in _succeeded(work.record_batches, answers):
            del work.record_batches[partition]
            work.written[partition] = answers[partition].offset
        return self._classify(Api.PRODUCE, results)

    def _add_offsets(
        self, identity: Identity, deadline: Deadline
    ) -> tuple[RequestAnswer, EosError]:
        answer = self._port.add_offsets(self._transactional_id, identity, self._group, deadline)
        return self._classify(Api.ADD_OFFSETS, [(self._group, answer)])

    def _commit_offsets(
        self, identity: Identity, deadline: Deadline, work: Work
    ) -> tuple[RequestAnswer, EosError]:
        answers = self._port.commit_offsets(
            self._transactional_id, identity, self._group, work.offsets, deadline
        )
        results = _by_partition(work.offsets, answers)
        for partition in _succeeded(work.offsets, answers):
            del work.offsets[partition]
        return self._classify(Api.TXN_OFFSET_COMMIT, results)

    def _end(
        self, identity: Identity, commit: bool, deadline: Deadline
    ) -> tuple[RequestAnswer, EosError]:
        def reached(point: str) -> None:
            if commit:
                self._reached(point)

        reached("end_txn_sent:before")
        answer = self._port.end_txn(
            self._transactional_id,
            identity,
            commit,
            deadline,
            on_sent=lambda: reached("end_txn_sent:after"),
        )
        reached("end_txn_answered:before")
        return self._classify(Api.END_TXN, [("", answer)], answer.identity)

    def _classify(
        self, api: Api, answers: _Answers, identity: Identity = NO_IDENTITY
    ) -> tuple[RequestAnswer, EosError]:
        return _classify(api, answers, self._transactional_id, identity, self._group)


def add_partitions(
    port: TransactionPort,
    transactional_id: str,
    identity: Identity,
    partitions: frozenset[TopicPartition],
    deadline: Deadline,
) -> tuple[RequestAnswer, EosError]:
    """Send AddPartitionsToTxn, which TV1 needs before the first record batch of a partition. The
    driver does so for the ledger, each writer for its target partitions."""
    answers = port.add_partitions(transactional_id, identity, partitions, deadline)
    results = _by_partition(partitions, answers)
    return _classify(Api.ADD_PARTITIONS, results, transactional_id, NO_IDENTITY)


def unanswered(api: Api, error: NoAnswerError) -> tuple[RequestAnswer, EosError]:
    request, reason = api.value, error.message
    return RequestAnswer(api, None), UnavailableError(
        "no_response_by_deadline",
        f"{request} had no response by its deadline: {reason}",
        hint="check that the brokers run and are reachable from this machine",
        **error.fields,
    )


def _classify(
    api: Api, answers: _Answers, transactional_id: str, identity: Identity, group: str = ""
) -> tuple[RequestAnswer, EosError]:
    deciding = {outcome_of(api, answer.error): (where, answer) for where, answer in answers}
    outcome = worst(deciding)
    if outcome is Outcome.OK:
        request = api.value
        expired = UnavailableError(
            "transactional_id_expired",
            f"Kafka granted {request}, but {identity!r} does not follow the previous identity: the"
            f" transactional id {transactional_id!r} expired while it was idle",
            hint="start again; set the brokers' transactional.id.expiration.ms to more than the "
            "longest pause of the pipeline",
        )
        return RequestAnswer(api, outcome, identity), expired
    where, answer = deciding[outcome]
    where = where or transactional_id
    resource = {30: group, 53: transactional_id}.get(answer.error, "")
    return RequestAnswer(api, outcome), describe(api, answer.error, answer.message, where, resource)


_MISSING = Answer(-1, "the partition is missing from the response")


def _by_partition(
    results: Iterable[TopicPartition], answers: Mapping[TopicPartition, Answer | ProduceAnswer]
) -> list[tuple[str, Answer | ProduceAnswer]]:
    return [(f"{at.topic}-{at.partition}", answers.get(at, _MISSING)) for at in sorted(results)]


def _succeeded(
    results: Iterable[TopicPartition], answers: Mapping[TopicPartition, Answer | ProduceAnswer]
) -> list[TopicPartition]:
    return [at for at in results if at in answers and answers[at].error == 0]
