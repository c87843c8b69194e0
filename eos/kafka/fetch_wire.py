"""Encode Fetch requests and parse their responses, without a Python object per field.

The record bytes of a response stay where they were received. Each length is compared with the
bytes left. So a damaged response can't cause reads outside its buffer, or large allocations.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from eos.kafka.api import TopicPartition

API_KEY, VERSION = 1, 12
_HEADER = struct.Struct(">hhih")  # api, version, correlation id, length of the client id
# replica id, wait, smallest and largest size, isolation level, session id and epoch
_BODY = struct.Struct(">iiiibii")
_CONSUMER, _MIN_BYTES, _READ_COMMITTED, _NO_SESSION = -1, 1, 1, (0, -1)
# partition, leader epoch, offset, last fetched epoch, log start, largest size
_PARTITION = struct.Struct(">iiqiqi")
_UNKNOWN = -1
_START = struct.Struct(">ihi")  # throttle time, error, session id
# partition, error, high watermark, last stable offset, log start offset
_FOUND = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_ABORTED_BYTES = _ABORTED.size + 1  # one byte more: the number of tagged fields, 0
_INT32 = struct.Struct(">i")
_VARINT_BITS_MAX = 35


class BrokenResponseError(ValueError):
    """Error of a response that does not follow Kafka's protocol."""


class Position(NamedTuple):
    partition: TopicPartition
    offset: int


class FetchedPartition(NamedTuple):
    """A partition's part of a response. `records` is a view of the receive buffer."""

    partition: TopicPartition
    error: int
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]  # producer id and first offset of each transaction
    records: memoryview


class FetchResponse(NamedTuple):
    throttle_ms: int
    error: int
    partitions: dict[TopicPartition, FetchedPartition]


def fetch_request(
    correlation: int, client_id: str, positions: Sequence[Position], bytes_max: int, wait_ms: int
) -> bytes:
    """Return an encoded Fetch request with its size prefix, for read_committed data.

    The broker fills the response in the order of `positions`, up to `bytes_max`. The first record
    batch in the response may be larger than that."""
    parts = [
        _HEADER.pack(API_KEY, VERSION, correlation, len(client_id.encode())),
        client_id.encode(),
        b"\0",  # no tagged fields
        _BODY.pack(_CONSUMER, wait_ms, _MIN_BYTES, bytes_max, _READ_COMMITTED, *_NO_SESSION),
    ]
    topics = [
        (topic, list(group)) for topic, group in groupby(positions, lambda each: each.partition[0])
    ]
    parts.append(_uvarint(len(topics) + 1))
    for topic, group in topics:
        name = topic.encode()
        parts += [_uvarint(len(name) + 1), name, _uvarint(len(group) + 1)]
        for (_, number), offset in group:
            parts.append(_PARTITION.pack(number, _UNKNOWN, offset, _UNKNOWN, _UNKNOWN, bytes_max))
            parts.append(b"\0")
        parts.append(b"\0")
    parts.append(b"\1\1\0")  # no forgotten topics, an empty rack, no tagged fields
    frame = b"".join(parts)
    return _INT32.pack(len(frame)) + frame


def fetch_response(view: memoryview, correlation: int) -> FetchResponse:
    """Parse a Fetch response without its size prefix.

    Raise BrokenResponseError if it is malformed, or has another correlation id."""
    try:
        cursor = _Cursor(view)
        received = cursor.int32()
        if received != correlation:
            raise BrokenResponseError(f"correlation id {received}, expected {correlation}")
        cursor.skip_tags()
        throttle_ms, error, _ = cursor.struct(_START)
        found = {each.partition: each for each in _partitions(cursor)}
    except (struct.error, IndexError, UnicodeDecodeError) as cause:
        raise BrokenResponseError("the response is shorter than its fields") from cause
    return FetchResponse(throttle_ms, error, found)


def _partitions(cursor: _Cursor) -> Iterator[FetchedPartition]:
    for _ in range(cursor.count()):
        topic = str(cursor.blob(), "utf-8")
        for _ in range(cursor.count()):
            number, error, high, stable, _ = cursor.struct(_FOUND)
            aborted = tuple(cursor.aborted() for _ in range(cursor.count(_ABORTED_BYTES)))
            cursor.int32()  # skip the preferred replica, meant for clients that send their rack
            records = cursor.blob()
            cursor.skip_tags()
            yield FetchedPartition(
                TopicPartition(topic, number), error, high, stable, aborted, records
            )
        cursor.skip_tags()


class _Cursor:
    """A position in the bytes of a response."""

    __slots__ = ("at", "view")

    def __init__(self, view: memoryview) -> None:
        self.view, self.at = view, 0

    def struct(self, form: struct.Struct) -> tuple[int, ...]:
        found = form.unpack_from(self.view, self.at)
        self.at += form.size
        return found

    def int32(self) -> int:
        return self.struct(_INT32)[0]

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, _VARINT_BITS_MAX, 7):
            byte = self.view[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise BrokenResponseError("a number of more than five bytes")

    def count(self, each_bytes: int = 1) -> int:
        """Read the length of an array; a null array has length 0.

        Raise BrokenResponseError if the bytes left are too few for that many elements."""
        count = max(0, self.uvarint() - 1)  # 0 is null, 1 is empty
        self._require(count * each_bytes)
        return count

    def blob(self) -> memoryview:
        size = self.count()
        self.at += size
        return self.view[self.at - size : self.at]

    def aborted(self) -> tuple[int, int]:
        producer_id, first_offset = self.struct(_ABORTED)
        self.skip_tags()
        return producer_id, first_offset

    def skip_tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            size = self.uvarint()
            self._require(size)
            self.at += size

    def _require(self, size: int) -> None:
        left = len(self.view) - self.at
        if size > left:
            raise BrokenResponseError(f"{size} bytes claimed, {left} left")


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
