"""Look up the state of a transactional id at its coordinator, and list all transactional ids."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.kafka.api import DescribedTransaction, Identity
from eos.kafka.cluster import Cluster, Kind, NoCoordinatorError, tries
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
    def build() -> Any:
        return DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id])

    error = 0
    for _ in tries(deadline):
        try:
            response = cluster.send_repeatable(
                lambda: cluster.coordinator(Kind.TRANSACTION, transactional_id, deadline),
                build,
                deadline,
            )
        except NoCoordinatorError as none:
            raise refused("FindCoordinator", none.error, transactional_id) from none
        found = response.transaction_states[0]
        error = found.error_code
        if error == 0:
            identity = Identity(found.producer_id, found.producer_epoch)
            phase = str(found.transaction_state)
            return DescribedTransaction(phase, identity, found.transaction_timeout_ms)
        if error not in _RETRIED:
            raise refused("DescribeTransactions", error, transactional_id)
        cluster.forget_coordinators()
    last_error = name_of(error)
    raise UnavailableError(
        "transaction_coordinator_unavailable",
        f"Kafka answered {last_error} to DescribeTransactions for {transactional_id} until the "
        "deadline",
        error=error,
        hint="the transaction coordinator is moving or starting: start again",
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
