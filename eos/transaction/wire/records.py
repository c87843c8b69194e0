"""Reads a short stretch of one partition: the ledger, or what a test wants to see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kafka.record import MemoryRecords

from eos.deadline import Deadline
from eos.errors import UnavailableError
from eos.transaction.outcomes import name_of
from eos.transaction.port import TopicPartition
from eos.transaction.wire.cluster import LAST_MOMENTS_MS, Cluster
from eos.transaction.wire.fetch import RETRIED, fetch_once
from eos.transaction.wire.refusal import refused


class StoredRecord(NamedTuple):
    """As it lies in the log. `producer_id` -1 and `epoch` -1: written without idempotence."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    epoch: int

    @property
    def bytes(self) -> int:
        """What it holds, names of headers included."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def read_records(
    cluster: Cluster,
    partition: TopicPartition,
    offset_start: int,
    offset_end: int,
    committed: bool,
    deadline: Deadline,
    records_max: int,
    bytes_max: int,
) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    size = 0
    position = offset_start
    error: int | None = None  # no answer
    while position < offset_end:
        if deadline.has_passed:
            raise _too_late(partition, position, offset_end, error, committed)
        result = fetch_once(cluster, partition, position, committed, deadline)
        if result is None:
            # Not for want of time: then what was answered before says more.
            error = None if deadline.left_ms > LAST_MOMENTS_MS else error
            cluster.pause(deadline)
            continue
        error = result.error_code
        if error in RETRIED:
            cluster.pause(deadline)
            continue
        if error:
            where = f"{partition.topic}-{partition.partition} from offset {position}"
            raise refused("Fetch", error, where)
        aborted = _Aborted(result.aborted_transactions or ())
        for batch in _batches(result.records):
            if not aborted.hides(batch) or not committed:
                for record in _records(batch):
                    if not offset_start <= record.offset < offset_end:
                        continue
                    if len(found) == records_max or size >= bytes_max:
                        return found
                    found.append(record)
                    size += record.bytes
            # Also past what was compacted away, control batches and hidden ones.
            position = max(position, batch.last_offset + 1)
    return found


def _too_late(
    partition: TopicPartition, position: int, offset_end: int, error: int | None, committed: bool
) -> UnavailableError:
    where = f"{partition.topic}-{partition.partition}"
    why = ": its leader did not answer" if error is None else f": {name_of(error)}" if error else ""
    hint = "is the partition's leader alive, and can it be reached from here?"
    if error == 0:
        hint = "a transaction that is still open there holds readers up" if committed else ""
    return UnavailableError(
        f"{where} could not be read from offset {position} to {offset_end} in time{why}",
        hint=hint,
        offset=position,
    )


class _Aborted:
    """Which batches belong to aborted transactions, as the broker lists them with a fetch.

    A transaction is listed from its first offset; it ends at the producer's abort marker. Batches
    must be shown to `hides` in offset order.
    """

    def __init__(self, listed: Any) -> None:
        self._to_come = sorted(((t.first_offset, t.producer_id) for t in listed), reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: Any) -> bool:
        while self._to_come and self._to_come[-1][0] <= batch.last_offset:
            self._open.add(self._to_come.pop()[1])
        if batch.is_control_batch:
            if any(record.abort for record in batch):
                self._open.discard(batch.producer_id)
            return True
        return bool(batch.is_transactional and batch.producer_id in self._open)


def _batches(blob: bytes | None) -> Iterator[Any]:
    """Whole batches only: the broker cuts the last one where the size limit falls."""
    records = MemoryRecords(blob or b"")
    while records.has_next():
        yield records.next_batch()


def _records(batch: Any) -> Iterator[StoredRecord]:
    if batch.is_control_batch:
        return
    for record in batch:
        yield StoredRecord(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((name, value) for name, value in record.headers),
            batch.producer_id,
            batch.producer_epoch,
        )
