"""Look up the state of a transactional id at its coordinator, and list all transactional ids."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.kafka.api import DescribedTransaction, Identity
from eos.kafka.cluster import Cluster, Kind, tries
from eos.kafka.coordinators import ask_coordinator
from eos.kafka.outcomes import name_of
from eos.kafka.refusals import refused

_RETRIED = frozenset({14, 15, 16})


class ListedTransaction(NamedTuple):
    """A transactional id that a coordinator knows. `phase` is its state, such as "Ongoing"."""

    transactional_id: str
    producer_id: int
    phase: str


def transaction_state(
    cluster: Cluster, transactional_id: str, deadline: Deadline
) -> DescribedTransaction:
    response = ask_coordinator(
        cluster,
        Kind.TRANSACTION,
        transactional_id,
        lambda: DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id]),
        lambda response: int(response.transaction_states[0].error_code),
        deadline,
    )
    found = response.transaction_states[0]
    identity = Identity(found.producer_id, found.producer_epoch)
    return DescribedTransaction(
        str(found.transaction_state), identity, found.transaction_timeout_ms
    )


def list_transactions(cluster: Cluster, deadline: Deadline) -> list[ListedTransaction]:
    """Return the transactions of all coordinators that this user may describe."""

    def build(_node: int) -> Any:
        return ListTransactionsRequest(version=0, state_filters=[], producer_id_filters=[])

    error = 0
    for _ in tries(deadline):
        answers = cluster.query_each(build, deadline).values()
        error = next((each.error_code for each in answers if each.error_code), 0)
        if error == 0:
            return [
                ListedTransaction(
                    each.transactional_id, each.producer_id, str(each.transaction_state)
                )
                for answer in answers
                for each in answer.transaction_states
            ]
        if error not in _RETRIED:
            raise refused("ListTransactions", error, "the cluster")
    last_error = name_of(error)
    raise UnavailableError(
        "transaction_coordinator_unavailable",
        f"Kafka answered {last_error} to ListTransactions until the deadline",
        error=error,
        hint="a transaction coordinator is moving or starting: try again",
    )
