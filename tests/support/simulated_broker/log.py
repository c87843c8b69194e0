"""One partition of the simulated broker: its log, and what its leader knows of each producer."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import google_crc32c

from eos.kafka.api import DescribedProducer, Identity, TransactionProfile

CORRUPT_MESSAGE, OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH = 2, 45, 47
RECORD_BATCHES_KEPT = 5
SEQUENCE_MAX = 2**31 - 1

# A record batch's header, format v2: base offset, length, leader epoch, magic, CRC; then what the
# CRC covers: attributes, last offset delta, two timestamps, producer id, epoch, base sequence,
# count.
_HEAD = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")


class Kind(Enum):
    DATA = "data"
    COMMIT = "commit"
    ABORT = "abort"


class Header(NamedTuple):
    identity: Identity
    sequence: int
    records: int

    @property
    def sequence_last(self) -> int:
        """Sequences wrap: 2**31 - 1 is followed by 0."""
        return (self.sequence + self.records - 1) & SEQUENCE_MAX


class Entry(NamedTuple):
    offset: int
    kind: Kind
    identity: Identity
    sequence: int
    records: int
    blob: bytes


def parse(blob: bytes) -> Header | None:
    """The header, or None if its CRC is wrong."""
    _, _, _, _, crc = _HEAD.unpack_from(blob)
    if google_crc32c.value(bytes(blob[_HEAD.size :])) != crc:
        return None
    _, _, _, _, producer_id, epoch, sequence, records = _BODY.unpack_from(blob, _HEAD.size)
    return Header(Identity(producer_id, epoch), sequence, records)


@dataclass(slots=True)
class _Producer:
    """What the leader keeps of a producer id."""

    epoch: int
    # (first sequence, last sequence, offset) of the newest record batches of this epoch
    newest: deque[tuple[int, int, int]] = field(
        default_factory=lambda: deque(maxlen=RECORD_BATCHES_KEPT)
    )
    transaction_start: int = -1


class PartitionLog:
    """Appends what passes the leader's checks; never looks at a record's bytes."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.offset_end = 0
        self._producers: dict[int, _Producer] = {}

    def has_open_transaction(self, identity: Identity) -> bool:
        """If so, the leader doesn't ask the coordinator about the next record batch."""
        producer = self._producers.get(identity.producer_id)
        return (
            producer is not None
            and producer.epoch == identity.epoch
            and producer.transaction_start >= 0
        )

    def append(self, header: Header, blob: bytes, profile: TransactionProfile) -> tuple[int, int]:
        """(error, offset). A range of sequences that is remembered is answered as it was then,
        whatever the bytes are."""
        producer = self._producers.get(header.identity.producer_id)
        if producer is not None and producer.epoch == header.identity.epoch:
            for first, last, offset in producer.newest:
                if (first, last) == (header.sequence, header.sequence_last):
                    return 0, offset
        error = self._refuses(producer, header, profile)
        if error:
            return error, -1
        if producer is None or producer.epoch != header.identity.epoch:
            start = producer.transaction_start if producer else -1
            producer = _Producer(header.identity.epoch, transaction_start=start)
            self._producers[header.identity.producer_id] = producer
        offset = self._append(Kind.DATA, header.identity, header.sequence, header.records, blob)
        producer.newest.append((header.sequence, header.sequence_last, offset))
        if producer.transaction_start < 0:
            producer.transaction_start = offset
        return 0, offset

    def _refuses(
        self, producer: _Producer | None, header: Header, profile: TransactionProfile
    ) -> int:
        if producer is None:
            # TV1 takes any first sequence from a producer it doesn't know: a hole at the
            # beginning goes unnoticed.
            is_hole = header.sequence != 0 and profile is TransactionProfile.TV2
            return OUT_OF_ORDER_SEQUENCE if is_hole else 0
        if header.identity.epoch < producer.epoch:
            return INVALID_PRODUCER_EPOCH
        expected = 0
        if header.identity.epoch == producer.epoch and producer.newest:
            expected = (producer.newest[-1][1] + 1) & SEQUENCE_MAX
        return 0 if header.sequence == expected else OUT_OF_ORDER_SEQUENCE

    def mark(self, identity: Identity, kind: Kind) -> None:
        """The end of a transaction. Under TV2 its epoch is one above the data's, which is what
        refuses late record batches of the old one."""
        self._append(kind, identity, -1, 1, b"")
        producer = self._producers.setdefault(identity.producer_id, _Producer(identity.epoch))
        if producer.epoch != identity.epoch:
            producer.newest.clear()
            producer.epoch = identity.epoch
        producer.transaction_start = -1

    def _append(
        self, kind: Kind, identity: Identity, sequence: int, records: int, blob: bytes
    ) -> int:
        offset = self.offset_end
        self.entries.append(Entry(offset, kind, identity, sequence, records, blob))
        self.offset_end += records
        return offset

    def cut(self, offset_end: int) -> None:
        """Lose what lies from this offset on, as an unclean leader election does."""
        self.entries = [entry for entry in self.entries if entry.offset < offset_end]
        self.offset_end = min(self.offset_end, offset_end)

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed reader must stop: the first open transaction."""
        starts = [p.transaction_start for p in self._producers.values() if p.transaction_start >= 0]
        return min(starts, default=self.offset_end)

    def read_uncommitted(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind is Kind.DATA]

    def read_committed(self) -> list[Entry]:
        """Record batches whose transaction's marker says COMMIT, up to the last stable offset."""
        waiting: dict[int, list[Entry]] = {}
        committed: list[Entry] = []
        for entry in self.entries:
            if entry.offset >= self.last_stable_offset:
                break
            if entry.kind is Kind.DATA:
                waiting.setdefault(entry.identity.producer_id, []).append(entry)
            else:
                ended = waiting.pop(entry.identity.producer_id, [])
                committed += ended if entry.kind is Kind.COMMIT else []
        return sorted(committed)

    def producers(self) -> dict[int, DescribedProducer]:
        return {
            producer_id: DescribedProducer(
                Identity(producer_id, producer.epoch),
                producer.newest[-1][1] if producer.newest else -1,
                producer.transaction_start,
            )
            for producer_id, producer in self._producers.items()
        }
