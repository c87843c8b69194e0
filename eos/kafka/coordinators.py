"""Send requests that may be repeated to the coordinator of a group or a transactional id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eos.deadline import Deadline
from eos.errors import EosError, NoAnswerError, UnavailableError
from eos.kafka.api import Api
from eos.kafka.cluster import Cluster, Kind, NoCoordinatorError, tries
from eos.kafka.outcomes import Outcome, describe, name_of, outcome_of
from eos.kafka.refusals import refused

UNSTABLE = 88  # UNSTABLE_OFFSET_COMMIT: an open transaction has offsets of the group
_RETRIED = frozenset({7, 13, 14, 15, 16, UNSTABLE})


def ask_coordinator(
    cluster: Cluster,
    kind: Kind,
    key: str,
    build: Callable[[], Any],
    error_of: Callable[[Any], int],
    deadline: Deadline,
) -> Any:
    """Return the coordinator's response. If the coordinator moves, retry until the deadline.

    `build` makes the request, and `error_of` returns a response's error code. Raise
    KafkaRefusedError if a retry can't help, and UnavailableError after the deadline."""
    error = 0
    for _ in tries(deadline):
        try:
            response = cluster.send_repeatable(
                lambda: cluster.coordinator(kind, key, deadline), build, deadline
            )
        except NoCoordinatorError as none:
            raise _not_found(kind, key, none) from none
        except NoAnswerError:
            if not error:
                raise
            break  # too little time was left for this try; the earlier answer explains more
        error = error_of(response)
        if error == 0:
            return response
        if error not in _RETRIED:
            raise refused(_name_of(build()), error, _object(kind, key))
        if error != UNSTABLE:
            cluster.forget_coordinators()
    raise _unavailable(kind, key, _name_of(build()), error)


def _name_of(request: Any) -> str:
    return str(request.name).removesuffix("Request")


def _object(kind: Kind, key: str) -> str:
    return f"group {key}" if kind is Kind.GROUP else key


def _not_found(kind: Kind, key: str, none: NoCoordinatorError) -> EosError:
    if outcome_of(Api.FIND_COORDINATOR, none.error) is Outcome.RETRY:
        return describe(Api.FIND_COORDINATOR, none.error, none.message, _object(kind, key))
    return refused("FindCoordinator", none.error, _object(kind, key))


def _unavailable(kind: Kind, key: str, api: str, error: int) -> UnavailableError:
    last_error, asked = name_of(error), _object(kind, key)
    text = f"Kafka answered {last_error} to {api} for {asked} until the deadline"
    if error == UNSTABLE:
        return UnavailableError(
            "group_offsets_pending",
            text,
            hint="an open transaction has offsets of this group: wait until it ends or times out; "
            "`kafka-transactions.sh --bootstrap-server ... list` shows open transactions",
            error=error,
        )
    if kind is Kind.GROUP:
        return UnavailableError(
            "group_coordinator_unavailable",
            text,
            hint="the group's coordinator is moving or starting: start again",
            error=error,
        )
    return UnavailableError(
        "transaction_coordinator_unavailable",
        text,
        hint="the transaction coordinator is moving or starting: start again",
        error=error,
    )
