"""Parse the records of one record batch in Python, one after another.

Every length and count is checked against the remaining bytes, so a damaged batch can't use more
memory than its size. This parser is for few records, such as a ledger's. `eos.verify.records`
parses millions of records with numpy.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from eos.kafka.api import Identity
from eos.kafka.records.batch_headers import Batch
from eos.kafka.records.decompression import BrokenPayloadError, unpack

_VARINT_BITS_MAX = 70
_END_TXN = struct.Struct(">hi")  # value of a marker: version and coordinator epoch
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_REPLACEMENT = "\ufffd".encode()


class StoredRecord(NamedTuple):
    """A record in a log. `producer_id` and `epoch` are -1 if the producer was not idempotent.

    `sequence` is the base sequence of its record batch. `is_alone` means that the record batch has
    no other record.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    producer_id: int
    epoch: int
    is_transactional: bool = False
    sequence: int = -1
    is_alone: bool = False

    @property
    def bytes(self) -> int:
        """Return the size of key, value and headers, including header names."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class Marker(NamedTuple):
    """The control record that ends a producer's transaction on one partition.

    Under TV2 its epoch is the next one. `coordinator_epoch` counts the elections of the coordinator
    that sent it.
    """

    offset: int
    identity: Identity
    is_commit: bool
    coordinator_epoch: int
    at_ms: int


def marker_of(batch: Batch) -> Marker | None:
    """Return the marker in a control batch; None if it ends no transaction."""
    if batch.marker not in {"COMMIT", "ABORT"}:
        return None
    (record,) = stored_records(batch)
    _, coordinator_epoch = _END_TXN.unpack_from(record.value or b"\0" * _END_TXN.size)
    is_commit = batch.marker == "COMMIT"
    at_ms = record.timestamp_ms
    return Marker(batch.offset, batch.identity, is_commit, coordinator_epoch, at_ms)


def stored_records(batch: Batch) -> list[StoredRecord]:
    """Return the records of a record batch. Raise BrokenPayloadError if it is damaged."""
    if not batch.is_sound:
        raise BrokenPayloadError("its checksum or its header is wrong")
    if not batch.records:  # compaction may leave an empty batch
        return []
    return parse(batch, unpack(batch.codec, batch.payload))


def parse(batch: Batch, data: bytes) -> list[StoredRecord]:
    """Return a record batch's records, parsed from its uncompressed bytes.

    Raise BrokenPayloadError if the bytes are damaged."""
    cursor = _Cursor(data)
    try:
        found = [_record(cursor, batch) for _ in range(batch.records)]
    except IndexError as error:
        raise BrokenPayloadError("a record is shorter than its fields") from error
    cursor.require_at(len(cursor.data))
    return found


class _Cursor:
    """A position in the uncompressed bytes."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def varint(self) -> int:
        """Read a zigzag varint."""
        value = 0
        for shift in range(0, _VARINT_BITS_MAX, 7):
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and not value >> 64:
                return (value >> 1) ^ -(value & 1)
        raise BrokenPayloadError("a number of more than 64 bits")

    def blob(self) -> bytes | None:
        size = self.varint()
        if size < 0:
            return None
        end = self.at + size
        if end > len(self.data):
            raise BrokenPayloadError(f"{size} bytes claimed, {len(self.data) - self.at} left")
        blob, self.at = self.data[self.at : end], end
        return blob

    def require_at(self, end: int) -> None:
        if self.at != end:
            raise BrokenPayloadError(f"a record ends at byte {self.at}, expected {end}")


def _record(cursor: _Cursor, batch: Batch) -> StoredRecord:
    size = cursor.varint()
    end = cursor.at + size
    cursor.at += 1  # attributes, unused
    time_delta, offset_delta = cursor.varint(), cursor.varint()
    key, value, count = cursor.blob(), cursor.blob(), cursor.varint()
    if not 0 <= count <= len(cursor.data) - cursor.at:
        raise BrokenPayloadError(f"{count} headers claimed")
    headers = tuple(_header(cursor) for _ in range(count))
    cursor.require_at(end)
    offset = batch.offset + offset_delta
    if not batch.offset <= offset <= batch.last_offset:
        raise BrokenPayloadError(f"a record of offset {offset}")
    return StoredRecord(
        offset,
        batch.first_ms + time_delta if batch.append_ms is None else batch.append_ms,
        key,
        value,
        headers,
        batch.identity.producer_id,
        batch.identity.epoch,
        batch.is_transactional,
        batch.sequence,
        batch.last_offset == batch.offset,
    )


def _header(cursor: _Cursor) -> tuple[str, bytes | None]:
    name = cursor.blob()
    if name is None:
        raise BrokenPayloadError("a header without a name")
    return header_name(name), cursor.blob()


def header_name(name: bytes) -> str:
    """Decode a header's name. Bytes that are not UTF-8 are replaced, as in Kafka's Java client."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        # Java replaces an encoded surrogate by one character, Python by three.
        return _SURROGATE.sub(_REPLACEMENT, name).decode(errors="replace")
