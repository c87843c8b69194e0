"""What the transaction coordinator says of a transactional id."""

from __future__ import annotations

import time
from typing import NamedTuple

from kafka.protocol.admin.transactions import DescribeTransactionsRequest

from eos.deadline import Deadline
from eos.kafka.client import KafkaClient
from eos.kafka.cluster import Kind

EXPIRED = 105  # TRANSACTIONAL_ID_NOT_FOUND
PATIENCE_S = 300


class Transaction(NamedTuple):
    """`state` is empty if the coordinator knows no such id."""

    state: str
    producer_id: int
    epoch: int


def transaction(wire: KafkaClient, transactional_id: str) -> Transaction:
    deadline, cluster = Deadline.after_ms(PATIENCE_S * 1000), wire._cluster
    response = cluster.ask(
        lambda: cluster.coordinator(Kind.TRANSACTION, transactional_id, deadline),
        lambda: DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id]),
        deadline,
    )
    (found,) = response.transaction_states
    assert found.error_code in (0, EXPIRED), found
    return Transaction(found.transaction_state, found.producer_id, found.producer_epoch)


def wait_ended(wire: KafkaClient, transactional_id: str) -> Transaction:
    """Until what was decided is carried out, with all of its markers. What is open stays open."""
    give_up_at = time.monotonic() + PATIENCE_S
    while (found := transaction(wire, transactional_id)).state.startswith("Prepare"):
        assert time.monotonic() < give_up_at, f"still {found}"
        time.sleep(0.02)
    return found


def wait_for(wire: KafkaClient, transactional_id: str, *states: str) -> Transaction:
    """Until the coordinator says one of these. "": it has forgotten the id."""
    give_up_at = time.monotonic() + PATIENCE_S
    while (found := transaction(wire, transactional_id)).state not in states:
        assert time.monotonic() < give_up_at, f"still {found}"
        time.sleep(0.02)
    return found
