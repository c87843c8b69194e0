"""Encode Arrow columns as Kafka record batches (format v2).

No Python code runs per record. The native library writes the bytes of a record batch. Without it,
numpy computes lengths and varints of all rows, and Arrow joins the bytes. C libraries compress and
compute CRC-32C. `encode_spans` encodes many record batches at once, so two hundred small ones take
little longer than one large one. `stamp` completes the header of a batch before it is sent.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import scalar_of
from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec
from eos.kafka.records import varint
from eos.kafka.records.columns import Columns, bytes_of
from eos.kafka.records.compression import compress
from eos.kafka.records.digest import digest
from eos.kafka.records.native_rows import NativeRows
from eos.kafka.records.sizes import Layout, layout
from eos.kafka.records.varint import Ints

__all__ = ["HEADER_BYTES", "BatchSpan", "Columns", "EncodedBatch", "encode", "encode_spans"]
__all__ += ["stamp"]

# base offset, length, leader epoch, magic | crc | attributes, last offset delta, base timestamp,
# max timestamp | producer id, epoch, base sequence | records. The CRC covers all bytes after it.
_HEAD = struct.Struct(">qiib")
_CRC = struct.Struct(">I")
_TAIL = struct.Struct(">hiqqqhii")
_IDENTITY = struct.Struct(">qhi")
_ATTRIBUTES = struct.Struct(">h")
_LAST_MS = struct.Struct(">q")

HEADER_BYTES = 61
_CRC_AT, _TAIL_AT, _LAST_MS_AT, _IDENTITY_AT = 17, 21, 35, 43
_LENGTH_COUNTS_FROM = 12  # the length field counts the bytes from here on
_TRANSACTIONAL = 0x10
_NO_LIMIT = 2**31 - 1


class EncodedBatch(NamedTuple):
    """A record batch without producer id, epoch, base sequence and CRC, which `stamp` adds."""

    head: bytes
    payload: Any  # the records, bytes-like
    records: int
    digest: int

    @property
    def blob(self) -> bytes:
        return b"".join((self.head, self.payload))

    @property
    def size(self) -> int:
        return len(self.head) + len(self.payload)


class BatchSpan(NamedTuple):
    """Rows `start` to `end` (exclusive) for one record batch, which may have at most `bytes_max`
    bytes."""

    start: int
    end: int
    bytes_max: int = _NO_LIMIT


def encode(columns: Columns, codec: Codec, base_timestamp_ms: int = 0) -> EncodedBatch:
    """Encode all rows as one record batch. Only the ledger record uses this function directly.

    Without a timestamp column, each record gets `base_timestamp_ms`.
    """
    rows = layout(columns, base_timestamp_ms)
    return encode_spans(rows, [BatchSpan(0, len(columns))], codec)[0]


def encode_spans(
    rows: Layout | NativeRows, spans: Sequence[BatchSpan], codec: Codec
) -> list[EncodedBatch]:
    """Encode one record batch per span. Spans must be non-empty and cover all rows in order.

    Spans are cut by uncompressed size, but compression may enlarge incompressible data. If a batch
    exceeds its limit only when compressed, it stays uncompressed. If it exceeds the limit in both
    forms, the result is too large, and the caller must reject it. A single large record can cause
    this.
    """
    encoded = []
    for span, (plain, crc) in zip(spans, _contents(rows, spans), strict=True):
        encoded.append(_record_batch(rows, span, plain, crc, codec))
    return encoded


def stamp(blob: Any, identity: Identity, sequence: int) -> bytes:
    """Return the record batch with this identity and sequence, transactional, with a valid CRC.

    `blob` is any object with the buffer protocol. Its records are read once for the CRC and copied
    once into the result. No step runs per record.
    """
    view = np.frombuffer(blob, np.uint8)  # the CRC library accepts arrays but no memoryview
    tail = bytearray(view[_TAIL_AT:HEADER_BYTES])
    attributes = _ATTRIBUTES.unpack_from(tail)[0] | _TRANSACTIONAL
    _ATTRIBUTES.pack_into(tail, 0, attributes)
    _IDENTITY.pack_into(tail, _IDENTITY_AT - _TAIL_AT, *identity, sequence)
    crc = google_crc32c.extend(google_crc32c.value(bytes(tail)), view[HEADER_BYTES:])
    return b"".join((view[:_CRC_AT].data, _CRC.pack(crc), tail, view[HEADER_BYTES:].data))


def last_ms(blob: Any) -> int:
    """Return the largest timestamp of a record batch's records."""
    return int(_LAST_MS.unpack_from(blob, _LAST_MS_AT)[0])


def _contents(rows: Layout | NativeRows, spans: Sequence[BatchSpan]) -> Iterator[tuple[Ints, int]]:
    """Yield the uncompressed records of each span, and their digest."""
    if isinstance(rows, NativeRows):
        yield from (rows.write(span.start, span.end) for span in spans)
        return
    starts = np.array([span.start for span in spans], np.int64)
    counts = np.array([span.end - span.start for span in spans], np.int64)
    offsets, data = _records(rows, starts, counts)
    for start, end, _ in spans:
        crc = digest(rows.keys, rows.values, rows.headers, start, end)
        yield data[offsets[start] : offsets[end]], crc


def _records(rows: Layout, starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return the start offset of each record, and the concatenated bytes of all records."""
    first = np.repeat(starts, counts)
    deltas = varint.zigzag(np.arange(len(first), dtype=np.int64) - first)
    delta_sizes = varint.sizes(deltas)
    lengths = rows.sizes + delta_sizes
    times = None
    if rows.timestamps is None:
        lengths += 1  # the timestamp delta is 0
    else:
        times = varint.zigzag(rows.timestamps - rows.timestamps[first])
        time_sizes = varint.sizes(times)
        lengths += time_sizes
    zigzag_lengths = varint.zigzag(lengths)

    head = varint.RowBuilder(len(first))
    head.varint(zigzag_lengths, varint.sizes(zigzag_lengths))
    head.fixed(0)  # attributes, unused
    if times is None:
        head.fixed(0)
    else:
        head.varint(times, time_sizes)
    head.varint(deltas, delta_sizes)
    head.varint(rows.key_length, rows.key_length_sizes)
    middle = varint.RowBuilder(len(first))
    middle.varint(rows.value_length, rows.value_length_sizes)
    parts = [head.column(), rows.keys.array, middle.column(), rows.values.array]
    if rows.headers is None:
        parts.append(scalar_of(b"\0", pa.binary()))
    else:
        header_count = varint.RowBuilder(len(first))
        header_count.varint(rows.header_count, rows.header_count_sizes)
        parts += [header_count.column(), rows.headers.encoded]
    return bytes_of(pc.binary_join_element_wise(*parts, scalar_of(b"", pa.binary())))


def _record_batch(
    rows: Layout | NativeRows, span: BatchSpan, plain: Ints, crc: int, codec: Codec
) -> EncodedBatch:
    start, end, bytes_max = span
    payload = compress(codec, plain)
    if HEADER_BYTES + len(payload) > bytes_max >= HEADER_BYTES + len(plain):
        codec = Codec.NONE
    if codec is Codec.NONE:
        payload = plain.tobytes()  # a copy, since the next record batch overwrites `plain`
    records = end - start
    base_ms = latest_ms = rows.base_timestamp_ms
    if rows.timestamps is not None:
        base_ms = int(rows.timestamps[start])
        latest_ms = int(rows.timestamps[start:end].max())
    length = HEADER_BYTES - _LENGTH_COUNTS_FROM + len(payload)
    head = _HEAD.pack(0, length, -1, 2)
    tail = _TAIL.pack(codec.value, records - 1, base_ms, latest_ms, -1, -1, -1, records)
    return EncodedBatch(head + b"\0\0\0\0" + tail, payload, records, crc)
