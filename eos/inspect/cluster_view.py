"""What do the brokers report of a transactional id, a group and open transactions now?

`eos status`, `eos audit`, `eos verify` and the report ask these questions. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from eos.deadline import Deadline
from eos.errors import EosError, UnavailableError
from eos.kafka.api import (
    CommittedOffset,
    DescribedProducer,
    DescribedTransaction,
    TopicPartition,
)
from eos.kafka.client import KafkaClient

_TIMEOUT_MS = 30_000
_UNSTABLE = 88  # UNSTABLE_OFFSET_COMMIT: an open transaction has offsets of this group


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open on a partition.

    `owner` is the transactional id, if a coordinator knows the transaction. Without one the
    transaction hangs: no coordinator will end it.
    """

    partition: TopicPartition
    producer: DescribedProducer
    owner: str
    phase: str


def soon() -> Deadline:
    return Deadline.after_ms(_TIMEOUT_MS)


def coordinated(
    wire: KafkaClient, transactional_id: str, deadline: Deadline
) -> DescribedTransaction | None:
    """Return the coordinator's state of a transactional id. None if the id never existed or has
    expired, if the coordinator does not answer, or if this user may not read it."""
    with suppress(EosError):
        return wire.transaction_state(transactional_id, deadline)
    return None


def group_offsets(
    wire: KafkaClient, group: str, partitions: Iterable[TopicPartition], deadline: Deadline
) -> Mapping[TopicPartition, CommittedOffset] | None:
    """Return the group's offsets; None while an open transaction hides them."""
    try:
        return wire.committed_offsets(group, deadline, list(partitions))
    except UnavailableError as error:
        if not is_hidden(error):
            raise
        return None


def is_hidden(error: UnavailableError) -> bool:
    return error.fields.get("error") == _UNSTABLE


def producers_on(
    wire: KafkaClient, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, Sequence[DescribedProducer]]:
    """Return the transactional producers that the leaders of these partitions know."""
    topics = wire.topics(sorted({tp.topic for tp in partitions}), soon())
    there = [tp for tp in partitions if tp.partition < topics[tp.topic].partitions]
    return wire.describe_producers(there, soon()) if there else {}


def opened(
    wire: KafkaClient, partitions: Sequence[TopicPartition], transactional_id: str
) -> list[OpenTransaction]:
    """Return the transactions that are open on these partitions, with their owners."""
    return open_among(wire, producers_on(wire, partitions), transactional_id)


def open_among(
    wire: KafkaClient,
    producers: Mapping[TopicPartition, Sequence[DescribedProducer]],
    transactional_id: str,
) -> list[OpenTransaction]:
    """Return the open transactions of these producers, with their owners."""
    opened = [
        (tp, producer)
        for tp, of_partition in sorted(producers.items())
        for producer in of_partition
        if producer.transaction_start_offset >= 0
    ]
    if not opened:
        return []
    listed = {each.producer_id: each for each in wire.list_transactions(soon())}
    found = []
    for tp, producer in opened:
        known = listed.get(producer.identity.producer_id)
        over = known is not None and known.phase in {"Empty", "CompleteCommit", "CompleteAbort"}
        # A transaction of the pipeline is no hanging one in this case:
        # 1. The partition is read while the transaction is open.
        # 2. The transaction ends, and its marker is written.
        # 3. The coordinator is asked, and answers that it is over.
        is_ours = known is not None and known.transactional_id == transactional_id
        owner = known.transactional_id if known and (is_ours or not over) else ""
        found.append(OpenTransaction(tp, producer, owner, known.phase if known else ""))
    return found
