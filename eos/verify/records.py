"""How are Kafka record batches parsed into keys, values and headers, and their digests computed?

The ledger has a receipt for what an attempt wrote to a target partition. A receipt's digest is
computed from the digests of its record batches (`kafka.records.digest`). They cover keys, values
and headers, so compression and timestamps don't change them. Each record's start follows from the
previous record's length. Only this search runs in a Python loop. All else is numpy over the records
of many record batches, or Arrow and C libraries.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eos.arrow import array_of
from eos.kafka.records.columns import Blobs, bytes_of, sliced
from eos.kafka.records.digest import digest
from eos.kafka.records.record_headers import Headers
from eos.kafka.records.varint import Ints

_PADDING = bytes(16)  # so that reading a varint at the end stays within the buffer
_VARINT_BYTES_MAX = 10


@dataclass(frozen=True, slots=True)
class Records:
    """Records of several record batches; batch n has the rows `first[n]` to `first[n + 1] - 1`."""

    keys: Blobs
    values: Blobs
    headers: Headers | None
    first: Sequence[int]

    def digest(self, number: int) -> int:
        start, end = self.first[number], self.first[number + 1]
        return digest(self.keys, self.values, self.headers, start, end)


def digests(payloads: Sequence[bytes], counts: Sequence[int]) -> list[int | None]:
    """Return the digest of each uncompressed record batch; None for a malformed one."""
    rows = array("q")
    complete: list[int] = []
    base = 0
    kept: list[bytes] = []
    for number, (payload, count) in enumerate(zip(payloads, counts, strict=True)):
        before = len(rows)
        if count and _walk(payload, count, base, rows.append):
            complete.append(number)
            kept.append(payload)
            base += len(payload)
        else:
            del rows[before:]
    found: list[int | None] = [None] * len(payloads)
    if not complete:
        return found
    first = np.cumsum([0, *(counts[number] for number in complete)]).tolist()
    records = parse_records(b"".join(kept), rows, first)
    if records is None:
        # At least one record batch is malformed. Parse each alone to find the valid ones.
        if len(complete) > 1:
            for number in complete:
                (found[number],) = digests([payloads[number]], [counts[number]])
        return found
    for place, number in enumerate(complete):
        found[number] = records.digest(place)
    return found


def parsed(payloads: Sequence[bytes], counts: Sequence[int]) -> tuple[Records, Ints] | None:
    """Return the records of several record batches, and each record's offset within its batch.

    Return None if a record batch is malformed.
    """
    rows, base, first = array("q"), 0, [0]
    for payload, count in zip(payloads, counts, strict=True):
        if not count or not _walk(payload, count, base, rows.append):
            return None
        base += len(payload)
        first.append(first[-1] + count)
    data = b"".join(payloads)
    records = parse_records(data, rows, first)
    if records is None:
        return None
    view = np.frombuffer(data + _PADDING, np.uint8)
    at = _past(view, np.frombuffer(rows, np.int64) + 1)  # skip attributes and timestamp delta
    return records, _numbers(view, at)[0]


def parse_records(data: bytes, rows: array[int], first: Sequence[int]) -> Records | None:
    """Return the records in `data`; None if a field does not end where its record does.

    `rows` has the offsets in `data` at which each record begins, after its length.
    """
    view = np.frombuffer(data + _PADDING, np.uint8)
    at = np.frombuffer(rows, np.int64)
    ends = np.append(at[1:], len(data))  # too high by the next record's length field
    at = at + 1  # skip the attributes
    for _ in range(2):  # skip the deltas of timestamp and offset
        at = _past(view, at)
    key_length, key_at = _numbers(view, at)
    value_length, value_at = _numbers(view, _end(key_at, key_length, ends))
    header_count, header_at = _numbers(view, _end(value_at, value_length, ends))
    if (min(key_length.min(), value_length.min()) < -1) or header_count.min() < 0:
        return None
    spans = [(key_at, key_length), (value_at, value_length)]
    if any((start + length > ends).any() for start, length in spans):
        return None
    keys, values = (_blobs(data, start, length) for start, length in spans)
    headers = None
    if header_count.any():
        headers = _headers(data, view, header_count, header_at, ends)
        if headers is None:
            return None
    return Records(keys, values, headers, first)


def _walk(data: bytes, count: int, base: int, found: Callable[[int], None]) -> bool:
    """Call `found` with `base` plus the start of each record in `data`.

    Return False if `data` has more or fewer than `count` records, or a malformed length.
    """
    at, size = 0, len(data)
    try:
        for _ in range(count):
            length = data[at]
            at += 1
            if length > 0x7F:
                byte = data[at]
                at += 1
                length = (length & 0x7F) | (byte & 0x7F) << 7
                shift = 14
                while byte > 0x7F:
                    byte = data[at]
                    at += 1
                    length |= (byte & 0x7F) << shift
                    shift += 7
            if length & 1 or at >= size:
                return False
            found(base + at)
            at += length >> 1
    except IndexError:
        return False
    return at == size


def _numbers(view: Ints, at: Ints) -> tuple[Ints, Ints]:
    """Return the zigzag varints at these offsets, and the offset after each varint."""
    byte = view[at]
    at = at + 1
    value = (byte & 0x7F).astype(np.int64)
    more = np.flatnonzero(byte > 0x7F)
    for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
        if not len(more):
            break
        byte = view[at[more]]
        at[more] += 1
        value[more] |= (byte & 0x7F).astype(np.int64) << shift
        more = more[byte > 0x7F]
    return (value >> 1) ^ -(value & 1), at


def _past(view: Ints, at: Ints) -> Ints:
    more = np.flatnonzero(view[at] > 0x7F)
    at = at + 1
    for _ in range(_VARINT_BYTES_MAX):
        if not len(more):
            break
        still = view[at[more]] > 0x7F
        at[more] += 1
        more = more[still]
    return at


def _end(start: Ints, length: Ints, ends: Ints) -> Ints:
    """Return the end of a field, capped at the end of its record."""
    found: Ints = np.minimum(start + np.maximum(length, 0), ends)
    return found


def _blobs(data: bytes, start: Ints, length: Ints) -> Blobs:
    """Return the bytes of `data` at these offsets with these lengths."""
    lengths = length.astype(np.int32)
    if not len(lengths) or lengths.max() <= 0:
        zeros = np.zeros(len(lengths) + 1, np.int32)
        return Blobs(None, lengths, zeros, np.zeros(0, np.uint8))
    borders = np.empty(2 * len(lengths), np.int32)
    borders[0::2] = start
    borders[1::2] = start + np.maximum(length, 0)
    every = sliced(np.frombuffer(data, np.uint8), borders)  # spans and the gaps between them
    spans = every.take(array_of(np.arange(0, len(borders), 2), pa.int32()))
    offsets, bytes_ = bytes_of(spans)
    return Blobs(spans, lengths, offsets, bytes_)


def _headers(data: bytes, view: Ints, count: Ints, at: Ints, ends: Ints) -> Headers | None:
    """Return the headers of all records; None if they are malformed.

    Step n reads the nth header of all records that have so many. Headers must end within their
    record, so a wrong header count alone can't make the loop long.
    """
    parts: list[tuple[Ints, ...]] = []
    row = np.flatnonzero(count)
    at = at[row]
    for number in range(int(count.max())):
        key_length, key_at = _numbers(view, at)
        value_length, value_at = _numbers(view, _end(key_at, key_length, ends[row]))
        at = _end(value_at, value_length, ends[row])
        if key_length.min() < 0 or value_length.min() < -1:
            return None
        if (key_at + key_length > ends[row]).any() or (value_at + value_length > ends[row]).any():
            return None
        parts.append((row, key_at, key_length, value_at, value_length))
        left = count[row] > number + 1
        row, at = row[left], at[left]
        if not len(row):
            break
    rows, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(rows, kind="stable")
    key_at, key_length, value_at, value_length = (column[order] for column in columns)
    first = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=first[1:])
    keys, values = _blobs(data, key_at, key_length), _blobs(data, value_at, value_length)
    return Headers(count.astype(np.int32), first, keys, values, None)
