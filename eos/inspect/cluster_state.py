"""What does the cluster alone know of a pipeline now: its transactions and its source's ends?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from eos.audit.history import Transaction
from eos.deadline import Deadline
from eos.errors import EosError
from eos.inspect.audit_live import LiveState, live
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient

_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A pipeline's state in the cluster.

    `ends` has the ends of source partitions that exist. `problem` is the reason why all else is
    missing.
    """

    at: datetime
    live: LiveState | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    problem: str = ""


def ask(
    wire: KafkaClient,
    transactional_id: str,
    group: str,
    ledger: str,
    found: Sequence[Transaction],
    position: Mapping[TopicPartition, int],
) -> ClusterState:
    """Return the pipeline's state in the cluster.

    `position` is the end that the table has for each source partition. If the cluster does not
    answer, the result has a `problem` only, so that a page loses one part instead of all.
    """
    at = datetime.now(timezone.utc)
    try:
        ends = _ends(wire, position)
        return ClusterState(at, live(wire, transactional_id, group, ledger, found), ends)
    except EosError as error:
        return ClusterState(at, problem=error.message)


def _ends(
    wire: KafkaClient, position: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int]:
    """Return the ends of committed records: records after an open transaction can't be read yet."""
    deadline = Deadline.after_ms(_TIMEOUT_MS)
    topics = wire.topics(sorted({tp.topic for tp in position}), deadline) if position else {}
    there = [
        tp
        for tp in position
        if not topics[tp.topic].error and tp.partition < topics[tp.topic].partitions
    ]
    if not there:
        return {}
    return wire.list_offsets(there, "latest", committed=True, deadline=deadline)
