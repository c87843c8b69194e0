"""Record batches as they lie in a log: their headers, whether they are whole, who may see them."""

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
_MARKER = struct.Struct(">hh")  # the key of a control record: its version, and what it marks
_ABORT, _COMMIT = 0, 1
_KNOWN_CODECS = frozenset(codec.value for codec in Codec)


class Batch(NamedTuple):
    """A record batch. `last_offset` bounds the offsets: compaction may leave fewer `records`.
    `marker`: of a control batch, "COMMIT", "ABORT" or the number of another kind. A record's time
    is `first_ms` and its own delta, or `append_ms` where the broker sets the time."""

    offset: int
    last_offset: int
    identity: Identity
    sequence: int
    records: int
    codec: int
    is_transactional: bool
    marker: str
    payload: Any  # numpy's bytes of the records, compressed
    is_sound: bool = True  # its checksum holds, and its header makes sense
    first_ms: int = -1
    append_ms: int | None = None

    @property
    def is_control(self) -> bool:
        return bool(self.marker)


class Old(NamedTuple):
    """A message of the formats before record batches, which have neither producers nor markers."""

    last_offset: int


def batches(blob: bytes) -> Iterator[Batch | Old]:
    """The whole ones: a broker cuts the last one where its limit falls."""
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


def _batch(blob: bytes, view: Any, at: int, end: int) -> Batch:
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
    """A control record: lengths and deltas of one byte each, then a key of four bytes. One that
    was compacted away leaves a batch without records."""
    if len(payload) < 9:
        return "?"
    _, kind = _MARKER.unpack_from(payload, 5)
    return {_ABORT: "ABORT", _COMMIT: "COMMIT"}.get(kind, str(kind))


class BatchHeader(NamedTuple):
    """`is_visible`: a reader of committed records is given it."""

    batch: Batch
    is_visible: bool


class Visibility:
    """Of one answer to a fetch, as every client decides it: the broker lists the transactions that
    were aborted, with their first offsets; each ends at its producer's marker."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._to_come = sorted(((first, pid) for pid, first in aborted), reverse=True)
        self._hidden: set[int] = set()

    def of(self, batch: Batch) -> bool:
        """To be asked in the order of the log."""
        while self._to_come and self._to_come[-1][0] <= batch.last_offset:
            self._hidden.add(self._to_come.pop()[1])
        producer_id = batch.identity.producer_id
        if batch.is_control:
            if batch.marker == "ABORT":
                self._hidden.discard(producer_id)
            return False
        return not (batch.is_transactional and producer_id in self._hidden)


class Markers:
    """What the log itself says of a producer's records against what readers are shown: a broker
    that lost its list of aborted transactions shows what the log's markers call aborted."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[int, bool, Identity]] = {}

    def see(self, seen: BatchHeader) -> tuple[int, Identity, str] | None:
        """The first offset, the identity, and the marker that says otherwise."""
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
    """Where the next fetch begins."""
    return found[-1].last_offset + 1 if found else None
