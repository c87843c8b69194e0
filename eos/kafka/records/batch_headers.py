"""Parse the headers of record batches, check their CRCs, and find those that readers see.

A record batch is visible if a read_committed consumer gets it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec

# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and largest
# timestamp, producer id, epoch, base sequence, count of records
_HEADER = struct.Struct(">qiibIhiqqqhii")
_HEAD = struct.Struct(">qi")
HEADER_BYTES = 61
_LENGTH_COUNTS_FROM, _MAGIC_AT, _CRC_FROM = 12, 16, 21
_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_MARKER = struct.Struct(">hh")  # the key of a control record: version and type
_ABORT, _COMMIT = 0, 1
_DELTA_AT = 23
_DELTA = struct.Struct(">i")
_KNOWN_CODECS = frozenset(codec.value for codec in Codec)


class Batch(NamedTuple):
    """A record batch in a log.

    Compaction may leave fewer `records` than there are offsets up to `last_offset`. `marker` is
    empty, or for a control batch "COMMIT", "ABORT", the number of another type, or "?". The
    timestamp of a record is `first_ms` plus its delta, or `append_ms` if the broker sets it."""

    offset: int
    last_offset: int
    identity: Identity
    sequence: int
    records: int
    codec: int
    is_transactional: bool
    marker: str
    payload: Any  # compressed bytes of the records, as a numpy array
    is_sound: bool = True  # the checksum is correct and the header is plausible
    first_ms: int = -1
    append_ms: int | None = None

    @property
    def is_control(self) -> bool:
        return bool(self.marker)


class Old(NamedTuple):
    """A message in a format that is older than record batches, without producer id or marker."""

    last_offset: int


def batches(blob: bytes | memoryview) -> Iterator[Batch | Old]:
    """Yield the complete record batches in bytes of a log.

    A Fetch response may end within a record batch, which is not yielded."""
    view = np.frombuffer(blob, np.uint8)
    at, size = 0, len(blob)
    while at + _MAGIC_AT < size:
        base, length = _HEAD.unpack_from(blob, at)
        end = at + _LENGTH_COUNTS_FROM + length
        if length <= 0 or end > size:
            return
        if blob[at + _MAGIC_AT] < 2:
            yield Old(base)
        elif end - at >= HEADER_BYTES:
            yield _batch(blob, view, at, end)
        else:
            yield Batch(base, base, Identity(-1, -1), -1, 0, 0, False, "", view[end:end], False)
        at = end


def _batch(blob: bytes | memoryview, view: Any, at: int, end: int) -> Batch:
    (base, _, _, _, crc, attributes, delta, first_ms, last_ms, *identity, sequence, count) = (
        _HEADER.unpack_from(blob, at)
    )
    payload = view[at + HEADER_BYTES : end]
    codec = attributes & _CODEC
    is_sound = (
        google_crc32c.extend(0, view[at + _CRC_FROM : end]) == crc
        and codec in _KNOWN_CODECS
        and 0 <= count <= delta + 1
    )
    return Batch(
        base,
        base + max(delta, 0),
        Identity(*identity),
        sequence,
        count,
        codec,
        bool(attributes & _TRANSACTIONAL),
        _marker(payload) if attributes & _CONTROL else "",
        payload,
        is_sound,
        first_ms,
        last_ms if attributes & _APPEND_TIME else None,
    )


def _marker(payload: Any) -> str:
    """Return the type of a control record, or "?" if compaction removed it.

    The record has one-byte lengths and deltas, then a key of four bytes."""
    if len(payload) < 9:
        return "?"
    _, kind = _MARKER.unpack_from(payload, 5)
    return {_ABORT: "ABORT", _COMMIT: "COMMIT"}.get(kind, str(kind))


class BatchHeader(NamedTuple):
    """A record batch, and whether a read_committed reader sees it."""

    batch: Batch
    is_visible: bool


class Visibility:
    """Filter that finds the visible record batches of one Fetch answer, as Kafka's clients do.

    The answer lists the aborted transactions by producer id and first offset. Each aborted
    transaction ends at the abort marker of its producer."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._to_come = sorted(((first, pid) for pid, first in aborted), reverse=True)
        self._hidden: set[int] = set()

    def of(self, batch: Batch) -> bool:
        """Return whether a read_committed reader sees this batch. Call it in log order."""
        while self._to_come and self._to_come[-1][0] <= batch.last_offset:
            self._hidden.add(self._to_come.pop()[1])
        producer_id = batch.identity.producer_id
        if batch.is_control:
            if batch.marker == "ABORT":
                self._hidden.discard(producer_id)
            return False
        return not (batch.is_transactional and producer_id in self._hidden)


class Markers:
    """Check that committed transactions are visible to consumers, and aborted ones are not.

    If a broker lost its list of aborted transactions, consumers get records of a transaction whose
    marker is an abort."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[int, bool, Identity]] = {}

    def see(self, seen: BatchHeader) -> tuple[int, Identity, str] | None:
        """Process the next record batch of a log. Return None unless it is a contradicting marker.

        For a commit marker after hidden records, or an abort marker after visible ones, return the
        transaction's first offset, its identity and the marker."""
        batch = seen.batch
        if not batch.is_control:
            if batch.is_transactional:
                first = (batch.offset, seen.is_visible, batch.identity)
                self._since.setdefault(batch.identity.producer_id, first)
            return None
        known = self._since.pop(batch.identity.producer_id, None)
        if known is None or batch.marker not in {"ABORT", "COMMIT"}:
            return None
        offset, was_visible, identity = known
        return (
            None if was_visible is (batch.marker == "COMMIT") else (offset, identity, batch.marker)
        )


def next_offset(found: Sequence[Batch | Old]) -> int | None:
    """Return the position of the next fetch; None without any batch."""
    return found[-1].last_offset + 1 if found else None


def is_control(blob: bytes | memoryview) -> bool:
    """Return whether the first record batch is a control batch, such as a transaction marker."""
    if len(blob) < HEADER_BYTES or blob[_MAGIC_AT] < 2:
        return False
    return bool(_HEADER.unpack_from(blob)[5] & _CONTROL)


def end_offset(blob: bytes | memoryview, position: int) -> int:
    """Return the offset after the last complete record batch; `position` if there is none.

    Only headers are read, and no CRC is checked. A damaged header may give a wrong offset, but
    `batches` detects the damage later.
    """
    at, size = 0, len(blob)
    while at + _MAGIC_AT < size:
        base, length = _HEAD.unpack_from(blob, at)
        end = at + _LENGTH_COUNTS_FROM + length
        if length <= 0 or end > size:
            break
        delta = 0
        if blob[at + _MAGIC_AT] >= 2 and end - at >= HEADER_BYTES:
            delta = max(0, _DELTA.unpack_from(blob, at + _DELTA_AT)[0])
        position = max(position, base + delta + 1)
        at = end
    return position
