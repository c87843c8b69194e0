"""What each of Kafka's error codes means for a transaction, request by request.

Pure data: the same code asks for different reactions from different requests (48 ends an attempt
when a Produce gets it and leaves the outcome open when EndTxn gets it). What to do with an outcome
is decided by `protocol`; the writers on the executors use the same table. A code that stands
nowhere here is `UNKNOWN`: it is never taken for success.
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
    """What an answer asks for. Ordered: of several partitions' outcomes the last one decides."""

    OK = 0
    RETRY = 1  # the same request again, after a pause, until the deadline
    REFRESH = 2  # look up leaders or coordinators again, then the same request
    ABORT = 3  # this attempt can't commit: abort, new epoch, redo the micro-batch
    UNKNOWN = 4  # carried out or not, the answer doesn't tell: never a success
    PROBE = 5  # our epoch is not the current one: init with (id, epoch) tells who moved it
    FENCED = 6  # a newer owner: stop, don't come back by itself
    FATAL = 7  # settings, permissions or data: a person must act


def _codes(**codes: Iterable[int]) -> dict[int, Outcome]:
    return {code: Outcome[name] for name, listed in codes.items() for code in listed} | {
        0: Outcome.OK
    }


_MEANINGS: Final[dict[Api, dict[int, Outcome]]] = {
    Api.FIND_COORDINATOR: _codes(RETRY=(7, 13, 14, 15), FATAL=(30, 35, 42, 53), ABORT=(120,)),
    # 51: our former transaction is still being completed, for ever if a target is offline.
    # 47 is what versions below 4 say for 90.
    Api.INIT_PRODUCER_ID: _codes(
        RETRY=(14, 51),
        REFRESH=(15, 16),
        FENCED=(47, 90),
        PROBE=(49,),
        FATAL=(31, 35, 42, 50, 53),
        ABORT=(120,),
    ),
    # All or nothing: beside a refused partition the good ones say 55, and go with it.
    Api.ADD_PARTITIONS: _codes(
        RETRY=(14, 51, 55),
        REFRESH=(3, 15, 16),
        PROBE=(47, 49, 90),
        ABORT=(-1, 48, 120),
        FATAL=(29, 35, 53),
    ),
    # 19 also stands for "the leader could not verify the transaction just now": routine when
    # many writers start together. 45 and 46 say that somebody else used our sequences (a writer
    # with several record batches in flight asks first whether an earlier one failed). 2 is
    # damage on the way: a redo sends other bytes.
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
    # 22, 25, 82: our group has members of its own kind, so somebody else uses its name. 69: it
    # is a share or streams group.
    Api.TXN_OFFSET_COMMIT: _codes(
        RETRY=(14, 51),
        REFRESH=(3, 7, 15, 16),
        PROBE=(47, 49, 90),
        ABORT=(48, 120),
        FATAL=(12, 22, 25, 28, 29, 30, 35, 53, 69, 82),
    ),
    # 15 may follow a decision that is already in the log, so the same request is repeated until
    # it is answered. 47, 48, 49, 90 don't tell commit from abort: 48 may be our own time-out, 90
    # may come after our commit succeeded and somebody took over.
    Api.END_TXN: _codes(
        RETRY=(51,),
        REFRESH=(-1, 7, 14, 15, 16),
        PROBE=(47, 48, 49, 90),
        ABORT=(120,),
        FATAL=(35, 53),
    ),
}


def outcome_of(api: Api, code: int) -> Outcome:
    """The outcome of one answer."""
    return _MEANINGS[api].get(code, Outcome.UNKNOWN)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The one that decides when partitions answer differently. No answer at all is UNKNOWN."""
    return max(outcomes, key=lambda outcome: outcome.value, default=Outcome.UNKNOWN)


def name_of(code: int) -> str:
    """`PRODUCER_FENCED (90)`: never a bare number."""
    return f"{KAFKA_ERRORS.get(code, 'an error that this release does not know')} ({code})"


def describe(
    api: Api, code: int, message: str = "", where: str = "", resource: str = ""
) -> EosError:
    """The error to stop with when this answer was the last word on a request.

    `message` is the broker's, `where` is what the request was about, in our words. `resource` is
    the name of what it may lack a right on; `where` says it for a partition.
    """
    about = f" for {where}" if where else ""
    said = f": {message.rstrip('.')}" if message else ""
    resource = resource or (where.rpartition("-")[0] if code == _TOPIC_REFUSED else "")
    cause, hint = cause_and_hint(api, code, resource) or _BY_OUTCOME[outcome_of(api, code)]
    text = f"Kafka answered {name_of(code)} to {api.value}{about}{said}. {cause}"
    name = KAFKA_ERRORS.get(code, "")
    return _class_of(api, code)(
        text, hint=hint, api=api.value, kafka_error=code, kafka_error_name=name, where=where
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
        return KafkaRefusedError  # it was looked up again until the deadline
    if outcome is Outcome.FENCED:
        return FencedError
    if outcome is Outcome.FATAL:
        return KafkaRefusedError
    if outcome in {Outcome.RETRY, Outcome.REFRESH}:
        return UnavailableError
    # Without an identity there is no attempt yet that could be redone.
    is_before = api in {Api.FIND_COORDINATOR, Api.INIT_PRODUCER_ID}
    return UnavailableError if is_before else AttemptFailedError


_RECORD_CODES = frozenset({10, 18, 32, 44, 87})
_TOPIC_REFUSED = 29
_MISSING_TOPIC_CODES = frozenset({3, 100})


_BY_OUTCOME: Final[dict[Outcome, tuple[str, str]]] = {
    Outcome.OK: ("", ""),
    Outcome.RETRY: ("It did not pass within the deadline.", "check the brokers' logs and load"),
    Outcome.REFRESH: (
        "The leader or coordinator was not found within the deadline.",
        "check that all brokers run and that their advertised listeners are reachable",
    ),
    Outcome.ABORT: ("The attempt can't commit any more.", "the micro-batch is redone"),
    Outcome.UNKNOWN: (
        "Whether the request was carried out is not known, so the attempt is not committed.",
        "look for this code in the broker's log",
    ),
    Outcome.PROBE: LOST_EPOCH,
    Outcome.FENCED: (
        "A newer owner holds the transactional id.",
        "stop one of the two copies of the pipeline",
    ),
    Outcome.FATAL: ("Neither a retry nor a new attempt mends this.", "check the broker's log"),
}
