"""Meaning of each Kafka error code for a transaction, by request.

One code may need different reactions: if Produce returns INVALID_TXN_STATE, the attempt ends; if
EndTxn returns it, the result is unknown. `transaction.protocol` decides what to do with an outcome.
The writers on the executors use the same table. A code that is not listed is `UNKNOWN`, and never
counts as success.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from eos.errors import (
    AttemptFailedError,
    EosError,
    FencedError,
    KafkaRefusedError,
    RecordRefusedError,
    UnavailableError,
    UnsupportedBrokerError,
)
from eos.kafka.api import Api
from eos.kafka.error_codes import KAFKA_ERRORS
from eos.kafka.remedies import LOST_EPOCH, cause_and_hint


class Outcome(Enum):
    """Reaction to an answer, ordered by severity. If partitions differ, the highest one decides."""

    OK = 0
    RETRY = 1  # repeat the same request after a pause, until the deadline
    REFRESH = 2  # look up leaders or coordinators again, then repeat the request
    ABORT = 3  # this attempt can't commit: abort, get a new epoch, retry the micro-batch
    UNKNOWN = 4  # the request may have been executed or not; never a success
    PROBE = 5  # our epoch is not current: InitProducerId with (id, epoch) shows the reason
    FENCED = 6  # a newer owner exists: stop, and don't restart automatically
    FATAL = 7  # settings, permissions or data need an operator


def _codes(**codes: Iterable[int]) -> dict[int, Outcome]:
    return {code: Outcome[name] for name, listed in codes.items() for code in listed} | {
        0: Outcome.OK
    }


_MEANINGS: Final[dict[Api, dict[int, Outcome]]] = {
    Api.FIND_COORDINATOR: _codes(RETRY=(7, 13, 14, 15, 16), FATAL=(30, 35, 42, 53), ABORT=(120,)),
    # CONCURRENT_TRANSACTIONS (51): our previous transaction is not complete yet. If a target
    # partition is offline, this lasts until it is back. Versions below 4 return
    # INVALID_PRODUCER_EPOCH (47) instead of PRODUCER_FENCED (90).
    Api.INIT_PRODUCER_ID: _codes(
        RETRY=(14, 51),
        REFRESH=(15, 16),
        FENCED=(47, 90),
        PROBE=(49,),
        FATAL=(31, 35, 42, 50, 53),
        ABORT=(120,),
    ),
    # All or nothing: if one partition is rejected, the others return OPERATION_NOT_ATTEMPTED (55).
    Api.ADD_PARTITIONS: _codes(
        RETRY=(14, 51, 55),
        REFRESH=(3, 15, 16),
        PROBE=(47, 49, 90),
        ABORT=(-1, 48, 120),
        FATAL=(29, 35, 53),
    ),
    # NOT_ENOUGH_REPLICAS (19) also means that the leader could not verify the transaction yet. This
    # is common if many writers start together. OUT_OF_ORDER_SEQUENCE_NUMBER (45) and
    # DUPLICATE_SEQUENCE_NUMBER (46) mean that another producer used our sequences. A writer with
    # several record batches in flight first checks whether an earlier one failed. After
    # CORRUPT_MESSAGE (2), damage in transit, the next attempt encodes and sends new bytes.
    Api.PRODUCE: _codes(
        RETRY=(7, 19, 20, 51),
        REFRESH=(3, 5, 6, 13, 56, 74, 100),
        ABORT=(2, 45, 46, 48, 59, 120),
        UNKNOWN=(-1,),
        PROBE=(47, 49, 90),
        FATAL=(10, 18, 21, 29, 31, 32, 35, 43, 44, 53, 76, 87),
    ),
    Api.ADD_OFFSETS: _codes(
        RETRY=(14, 51), REFRESH=(15, 16), PROBE=(47, 49, 90), ABORT=(48, 120), FATAL=(30, 35, 53)
    ),
    # ILLEGAL_GENERATION (22), UNKNOWN_MEMBER_ID (25), FENCED_INSTANCE_ID (82): the group has
    # consumers, so another application uses its name. GROUP_ID_NOT_FOUND (69): it is a share or
    # streams group.
    Api.TXN_OFFSET_COMMIT: _codes(
        RETRY=(14, 51),
        REFRESH=(3, 7, 15, 16),
        PROBE=(47, 49, 90),
        ABORT=(48, 120),
        FATAL=(12, 22, 25, 28, 29, 30, 35, 53, 69, 82),
    ),
    # COORDINATOR_NOT_AVAILABLE (15) may follow a decision that is already in the coordinator's log.
    # So the same request is repeated until it is answered. The PROBE codes don't show whether the
    # transaction committed. INVALID_TXN_STATE (48) may be our own timeout. PRODUCER_FENCED (90) may
    # arrive after our commit succeeded and a newer owner took over.
    Api.END_TXN: _codes(
        RETRY=(51,),
        REFRESH=(-1, 7, 14, 15, 16),
        PROBE=(47, 48, 49, 90),
        ABORT=(120,),
        FATAL=(35, 53),
    ),
}


def outcome_of(api: Api, code: int) -> Outcome:
    """Return the outcome of a request that was answered with this error code."""
    return _MEANINGS[api].get(code, Outcome.UNKNOWN)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the most severe outcome; UNKNOWN if there is none."""
    return max(outcomes, key=lambda outcome: outcome.value, default=Outcome.UNKNOWN)


def name_of(code: int) -> str:
    """Return the code with its name, such as `PRODUCER_FENCED (90)`."""
    return f"{KAFKA_ERRORS.get(code, 'unknown error')} ({code})"


def code_of(number: int) -> str:
    """Return this project's error code for one of Kafka's error codes."""
    return f"kafka_{KAFKA_ERRORS.get(number, 'unknown').lower()}"


def describe(
    api: Api, code: int, message: str = "", where: str = "", resource: str = ""
) -> EosError:
    """Return the error to raise for a request whose final answer has this error code.

    `message` is from the broker. `where` names the object of the request. `resource` names the
    object of a missing permission; for a partition it is derived from `where`.
    """
    about = f" for {where}" if where else ""
    detail = f": {message.rstrip('.')}" if message else ""
    resource = resource or (where.rpartition("-")[0] if code == _TOPIC_REFUSED else "")
    cause, hint = cause_and_hint(api, code, resource) or _BY_OUTCOME[outcome_of(api, code)]
    text = f"Kafka answered {name_of(code)} to {api.value}{about}{detail}. {cause}"
    return _class_of(api, code)(
        code_of(code),
        text,
        hint=hint,
        api=api.value,
        kafka_error=code,
        kafka_error_name=KAFKA_ERRORS.get(code, ""),
        where=where,
    )


def _class_of(api: Api, code: int) -> type[EosError]:
    outcome = outcome_of(api, code)
    if outcome is Outcome.OK:
        raise ValueError("an answer without an error describes no error")
    if code == 35:
        return UnsupportedBrokerError
    if api is Api.PRODUCE and code in _RECORD_CODES:
        return RecordRefusedError
    if code in _MISSING_TOPIC_CODES and outcome is Outcome.REFRESH:
        return KafkaRefusedError  # lookups until the deadline did not find the topic
    if outcome is Outcome.FENCED:
        return FencedError
    if outcome is Outcome.FATAL:
        return KafkaRefusedError
    if outcome in {Outcome.RETRY, Outcome.REFRESH}:
        return UnavailableError
    # Before InitProducerId succeeds, there is no attempt that could be retried.
    is_before = api in {Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID}
    return UnavailableError if is_before else AttemptFailedError


# The hint of a request that a partition's leader did not answer in time.
LEADER_HINT: Final = (
    "check that the partition's leader runs and is reachable from this machine: `kafka-topics.sh "
    "--bootstrap-server ... --describe --topic TOPIC` shows the leaders"
)
# Errors of a request to a partition's leader, after which a retry may succeed. UNKNOWN_SERVER_ERROR
# (-1) is one of them, since a broker may fail once to read a remote segment.
LEADER_RETRIED: Final = frozenset({-1, 3, 5, 6, 7, 9, 13, 56, 74, 75, 78})
_RECORD_CODES = frozenset({10, 18, 32, 44, 87})
_TOPIC_REFUSED = 29
_MISSING_TOPIC_CODES = frozenset({3, 100})


_BY_OUTCOME: Final[dict[Outcome, tuple[str, str]]] = {
    Outcome.OK: ("", ""),
    Outcome.RETRY: ("The error persisted until the deadline.", "check the brokers' logs and load"),
    Outcome.REFRESH: (
        "No leader or coordinator accepted the request within the deadline.",
        "check that all brokers run and that their advertised listeners are reachable",
    ),
    Outcome.ABORT: (
        "The attempt can't commit any more.",
        "the micro-batch is retried automatically",
    ),
    Outcome.UNKNOWN: (
        "It is unknown whether the request was executed, so the attempt is not committed.",
        "search the broker's log for this error",
    ),
    Outcome.PROBE: LOST_EPOCH,
    Outcome.FENCED: (
        "A newer instance owns the transactional id.",
        "stop one of the two instances of the pipeline",
    ),
    Outcome.FATAL: ("Neither a retry nor a new attempt can fix this.", "check the broker's log"),
}
