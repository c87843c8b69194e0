"""What do the brokers report of a pipeline now: transactions, group offsets, ledger, source ends?

`eos status`, `eos recover`, `eos audit`, `eos verify` and the report use this. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from uuid import uuid4

from eos.deadline import Backoff, Deadline
from eos.errors import EosError, UnavailableError
from eos.kafka.api import (
    DescribedProducer,
    DescribedTransaction,
    TopicPartition,
)
from eos.kafka.client import KafkaClient
from eos.kafka.transaction_states import TransactionPhase
from eos.ledger.record import Ends

TIMEOUT_MS = 30_000
_PAST_MS = 10_000  # for all queries about earlier ends together
_MARKER_MS = 10_000  # limit of the wait for a transaction's markers after its end
_UNSTABLE = 88  # UNSTABLE_OFFSET_COMMIT: an open transaction has offsets of this group
_ID_NOT_FOUND = 105  # TRANSACTIONAL_ID_NOT_FOUND

Producers = Mapping[TopicPartition, Sequence[DescribedProducer]]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open on a partition.

    `owner` is its transactional id. It is empty if the coordinators report none: then the
    transaction hangs, or its owner is one that this user may not describe. `hangs` means that no
    coordinator will end the transaction.
    """

    partition: TopicPartition
    producer: DescribedProducer
    owner: str
    phase: str
    hangs: bool = False

    @property
    def place(self) -> tuple[TopicPartition, int, int]:
        producer = self.producer
        return self.partition, producer.identity.producer_id, producer.transaction_start_offset

    @property
    def owner_text(self) -> str:
        return repr(self.owner) if self.owner else "an owner that this user may not DESCRIBE"


@dataclass(frozen=True, slots=True)
class PastEnds:
    """The ends that partitions had at several moments, by the timestamps of their records.

    `starts` has each partition's first offset now. If the end at a moment is that offset, and it is
    not 0, the real end may have been lower: the records around it were deleted.
    """

    starts: Ends = field(default_factory=dict)
    by_time: Mapping[datetime, Ends] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Queries about one pipeline to the brokers; no result is cached.

    `ledger` is the ledger's topic. Source offsets and the group's are read from the source's
    cluster, all else from the targets'.
    """

    client: KafkaClient
    transactional_id: str
    group: str
    ledger: str
    other: KafkaClient | None = None  # of the source's cluster, if that is another one

    @property
    def source(self) -> KafkaClient:
        return self.other or self.client

    @property
    def is_group_mirrored(self) -> bool:
        """Return whether the group's offsets are no part of the transactions. Then they may differ
        from the ledger."""
        return self.other is not None

    @property
    def ledger_partition(self) -> TopicPartition:
        return TopicPartition(self.ledger, 0)

    def transaction(self, timeout_ms: int = TIMEOUT_MS) -> DescribedTransaction | None:
        """Return the coordinator's state of the transactional id.

        None if the id never existed or has expired, if the coordinator does not answer, or if this
        user may not read it.
        """
        with suppress(EosError):
            return self.client.transaction_state(
                self.transactional_id, Deadline.after_ms(timeout_ms)
            )
        return None

    def group_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int = TIMEOUT_MS
    ) -> Ends | None:
        """Return the group's offsets; None while an open transaction hides them."""
        deadline = Deadline.after_ms(timeout_ms)
        try:
            found = self.source.committed_offsets(self.group, deadline, list(partitions))
        except UnavailableError as error:
            if not is_hidden(error):
                raise
            return None
        return {tp: committed.offset for tp, committed in found.items()}

    def committed_ends(self, partitions: Iterable[TopicPartition]) -> Ends:
        """Return the last stable offset of each partition that exists.

        Records from this offset on wait for an open transaction.
        """
        existing = self._existing(partitions, self.source)
        if not existing:
            return {}
        return self.source.list_offsets(existing, "latest", committed=True, deadline=_soon())

    def past_ends(
        self, partitions: Iterable[TopicPartition], moments: Iterable[datetime]
    ) -> PastEnds:
        """Return the ends of each partition that exists at these moments.

        Each moment takes a request to each leader. If one fails or the time is over, older moments
        are missing: the other data of the cluster do not depend on them.
        """
        wanted = sorted(moments, reverse=True)
        existing = self._existing(partitions, self.source) if wanted else []
        if not existing:
            return PastEnds()
        query, deadline = self.source.list_offsets, Deadline.after_ms(_PAST_MS)
        starts: Ends = {}
        by_time: dict[datetime, Ends] = {}
        with suppress(EosError):
            starts = query(existing, "earliest", committed=True, deadline=deadline)
            ends = query(existing, "latest", committed=True, deadline=deadline)
            for moment in wanted:
                at_ms = int(moment.timestamp() * 1000)
                later = query(existing, at_ms, committed=True, deadline=deadline)
                by_time[moment] = {tp: ends[tp] if at < 0 else at for tp, at in later.items()}
        return PastEnds(starts, by_time)

    def ledger_last(self) -> int | None:
        """Return the offset of the ledger's last committed record, by any producer."""
        at, deadline = self.ledger_partition, _soon()
        if self.client.topics([at.topic], deadline)[at.topic].error:
            return None
        end = self.client.list_offsets([at], "latest", committed=True, deadline=deadline)[at]
        first = self.client.list_offsets([at], "earliest", committed=True, deadline=deadline)[at]
        for start in range(end - 1, first - 1, -64):
            low = max(first, start - 63)
            records = self.client.read_records(at, low, end, committed=True, deadline=deadline)
            if records:
                return records[-1].offset
        return None

    def producers(self, partitions: Iterable[TopicPartition]) -> Producers:
        """Return the transactional producers that the leaders of these partitions know."""
        existing = self._existing(partitions, self.client)
        return self.client.describe_producers(existing, _soon()) if existing else {}

    def partitions(self, names: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of these topics, of those that exist."""
        topics = self.client.topics(sorted(set(names)), _soon())
        return [
            TopicPartition(name, number)
            for name, topic in sorted(topics.items())
            if not topic.error
            for number in range(topic.partitions)
        ]

    def open_transactions(
        self, producers: Producers, wait_ms: int | None = None
    ) -> list[OpenTransaction]:
        """Return the open transactions of these producers, with their owners.

        A transaction only seems to hang in this case:

        1. The partition's leader reports it as open.
        2. Its owner ends it. Its marker may be written later.
        3. The coordinator reports it as ended.

        So this looks again, and leaves out a transaction whose marker is written within `wait_ms`,
        by default `_MARKER_MS`.
        """
        found = {each.place: each for each in self._opened(producers)}
        deadline = Deadline.after_ms(_MARKER_MS if wait_ms is None else wait_ms)
        backoff = Backoff()
        while late := {each.partition for each in found.values() if each.hangs}:
            if deadline.has_passed:
                break
            backoff.sleep(deadline)
            now = {each.place: each for each in self._opened(self.producers(late))}
            found = {
                place: now[place] if each.hangs else each
                for place, each in found.items()
                if not each.hangs or place in now
            }
        return list(found.values())

    def _opened(self, producers: Producers) -> Iterator[OpenTransaction]:
        opened = [
            (tp, producer)
            for tp, of_partition in sorted(producers.items())
            for producer in of_partition
            if producer.transaction_start_offset >= 0
        ]
        if not opened:
            return
        listed = {each.producer_id: each for each in self.client.list_transactions(_soon())}
        is_unlisted = any(each.identity.producer_id not in listed for _, each in opened)
        is_complete = is_unlisted and self._sees_all_owners()
        for tp, producer in opened:
            known = listed.get(producer.identity.producer_id)
            if known is None:
                yield OpenTransaction(tp, producer, "", "", is_complete)
            else:
                phase = TransactionPhase.of(known.phase)
                hangs = phase is not None and phase.is_over
                yield OpenTransaction(tp, producer, known.transactional_id, known.phase, hangs)

    def _sees_all_owners(self) -> bool:
        """Return whether the coordinators list all transactions to this user.

        They leave out transactional ids that the user may not describe, without an error. To find
        that out, ask for an id that nobody uses.
        """
        try:
            self.client.transaction_state(uuid4().hex, _soon())
        except EosError as error:
            return error.fields.get("error") == _ID_NOT_FOUND
        return True

    def _existing(
        self, partitions: Iterable[TopicPartition], client: KafkaClient
    ) -> list[TopicPartition]:
        every = list(partitions)
        if not every:
            return []
        topics = client.topics(sorted({tp.topic for tp in every}), _soon())
        return [
            tp
            for tp in every
            if not topics[tp.topic].error and tp.partition < topics[tp.topic].partitions
        ]


def is_hidden(error: UnavailableError) -> bool:
    """Return whether the error means that an open transaction hides the group's offsets."""
    return error.fields.get("error") == _UNSTABLE


def _soon() -> Deadline:
    return Deadline.after_ms(TIMEOUT_MS)
