"""Record batches by hand, deadlines that count, and a coordinator on the broker."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import google_crc32c
import pytest

from eos.deadline import Deadline
from eos.kafka.api import CommittedOffset, Identity, TopicPartition, TransactionProfile
from eos.transaction.coordinator import Coordinator
from support.simulated_broker import SimulatedBroker, SimulatedPort

_TRANSACTIONAL = 1 << 4
_TIMESTAMP_MS = 1_700_000_000_000


def record_batch(identity: Identity, sequence: int, values: Sequence[bytes]) -> bytes:
    """Format v2, uncompressed, transactional, no keys. Shares no code with the encoder."""
    records = b"".join(_record(number, value) for number, value in enumerate(values))
    count = len(values)
    body = struct.pack(">hiqq", _TRANSACTIONAL, count - 1, _TIMESTAMP_MS, _TIMESTAMP_MS)
    body += struct.pack(">qhii", *identity, sequence, count) + records
    head = struct.pack(">qiib", 0, len(body) + 9, -1, 2)
    return head + struct.pack(">I", google_crc32c.value(body)) + body


def _record(number: int, value: bytes) -> bytes:
    body = b"\0" + _varint(0) + _varint(number) + _varint(-1)
    body += _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Zigzag, seven bits a byte."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


class Tries(Deadline):
    """A deadline that passes with the `count`-th wait: no clock, so runs repeat exactly."""

    __slots__ = ("_waits",)

    def __init__(self, count: int) -> None:
        super().__init__(float(count))
        object.__setattr__(self, "_waits", [0])

    @property
    def left_ms(self) -> int:
        """Asked by who is about to wait. Waits take no time."""
        self._count()[0] += 1
        return 0

    @property
    def has_passed(self) -> bool:
        return self._count()[0] >= self.at

    def _count(self) -> list[int]:
        return getattr(self, "_waits")  # type: ignore[no-any-return]  # noqa: B009 - frozen, slotted


BOTH = pytest.mark.parametrize("profile", TransactionProfile)
LEDGER, SOURCE = TopicPartition("ledger", 0), TopicPartition("source", 0)
TARGETS = [TopicPartition("target", number) for number in range(3)]
TIMEOUT_MS = 60_000


def cluster(server=TransactionProfile.TV2):
    return SimulatedBroker({"ledger": 1, "source": 2, "target": 3}, server)


def owner(broker, profile, reached=None):
    return Coordinator(SimulatedPort(broker, profile), "id", "group", TIMEOUT_MS, reached)


def some():
    return Tries(8)


def record(coordinator, value=b"ledger"):
    blob = record_batch(coordinator.identity, 0, [value])
    return coordinator.produce({LEDGER: blob}, some())


def begin(coordinator):
    """With the ledger's word where a producer id ran out of epochs: nobody else was there."""
    if not coordinator.is_awaiting_ledger:
        coordinator.begin(some())
    if coordinator.is_awaiting_ledger:
        coordinator.settled()
        coordinator.begin(some())
    return coordinator.identity


def attempt(coordinator, value=b"ledger", end=5):
    """Everything of an attempt except its end."""
    identity = begin(coordinator)
    record(coordinator, value)
    coordinator.commit_offsets({SOURCE: CommittedOffset(end)}, some())
    return identity


def values(broker, at=LEDGER):
    return [entry.blob[-len(b"ledger") - 1 : -1] for entry in broker.read_committed(at)]
