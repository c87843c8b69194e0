"""Whatever the columns hold, kafka-python reads back exactly that, from every codec."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from types import SimpleNamespace

import kafka.codec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from support.errors import examples

from eos.encode.split import record_sizes, split
from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec
from eos.kafka.records.columns import Columns
from eos.kafka.records.record_batch import (
    HEADER_BYTES,
    BatchSpan,
    encode,
    encode_spans,
    stamp,
)
from eos.kafka.records.sizes import layout

pytestmark = pytest.mark.usefixtures("each_library")

BASE_MS = 1_700_000_000_000
HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FLAT_LIST = pa.list_(pa.binary())


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int | None


short = st.binary(max_size=12)
# Lengths around those at which a varint grows by a byte.
edges = st.sampled_from([0, 1, 63, 64, 65, 200, 8191, 8192]).map(lambda n: b"\xe9" * n)
blob = st.one_of(st.none(), short, edges)
name = st.one_of(st.text(max_size=5), st.sampled_from(["", "same", "n" * 64]))
header_list = st.one_of(
    st.none(),
    st.lists(st.tuples(name, st.one_of(st.none(), short)), max_size=4),
    st.just([("same", b"1"), ("same", None), ("same", b"")] * 22),  # 66: a count of two bytes
)
moment = st.one_of(st.none(), st.integers(0, 2**42), st.integers(BASE_MS - 70, BASE_MS + 70))
record_lists = st.lists(st.builds(Record, blob, blob, header_list, moment), min_size=1, max_size=80)
byte_types = st.sampled_from([pa.binary(), pa.large_binary()])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Record], Columns]:
    """Records, and the same as columns of some type, perhaps a slice out of longer ones."""
    records = draw(record_lists)
    before = draw(st.integers(0, 3))
    junk = [Record(b"junk", b"junk", [("junk", b"junk")], 1)]
    padded = junk * before + records + junk
    with_headers, with_times = draw(st.booleans()), draw(st.booleans())
    key = pa.array([r.key for r in padded], draw(byte_types))
    value = pa.array([r.value for r in padded], draw(byte_types))
    if draw(st.booleans()):
        key = pa.nulls(len(padded))
        records = [Record(None, r.value, r.headers, r.timestamp_ms) for r in records]
    columns = Columns(
        key,
        value,
        listed(padded, is_flat=draw(st.booleans())) if with_headers else None,
        pa.array([r.timestamp_ms for r in padded], pa.int64()) if with_times else None,
    ).slice(before, before + len(records))
    return [
        Record(
            r.key,
            r.value,
            (r.headers or []) if with_headers else [],
            BASE_MS if r.timestamp_ms is None or not with_times else r.timestamp_ms,
        )
        for r in records
    ], columns


def listed(records: list[Record], *, is_flat: bool) -> pa.Array:
    """As structs, or as Spark hands them over: each record's keys and then its values."""
    if not is_flat:
        return pa.array([r.headers for r in records], HEADER_LIST)
    halves = [r.headers and ([k.encode() for k, _ in r.headers], r.headers) for r in records]
    return pa.array([h and h[0] + [v for _, v in h[1]] for h in halves], FLAT_LIST)


@pytest.fixture(autouse=True, scope="module")
def _snappy_for_kafka_python():
    """kafka-python reads snappy through a package that wraps the library; Arrow wraps it too."""

    def decompress(block: bytes) -> bytes:
        size = shift = 0
        for byte in bytes(block):  # a block begins with its plain size, as a varint
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return pa.decompress(bytes(block), size, "snappy", asbytes=True)

    before = kafka.codec.snappy
    kafka.codec.snappy = SimpleNamespace(decompress=decompress)
    yield
    kafka.codec.snappy = before


def read(blob: bytes):
    """The only record batch in `blob` as kafka-python sees it, and its records."""
    stored = MemoryRecords(blob)
    batch = stored.next_batch()
    assert batch.validate_crc()
    assert stored.next_batch() is None
    records = [Record(r.key, r.value, [tuple(h) for h in r.headers], r.timestamp) for r in batch]
    return batch, records


def eight_bits(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


OF_A_BYTE = [eight_bits(byte) for byte in range(256)]


def reference_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = OF_A_BYTE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def reference_digest(records: list[Record]) -> int:
    """From decoded records, as `eos.kafka.records.digest` describes it; it shares no code with
    it."""

    def column(blobs: list[bytes | None]) -> bytes:
        lengths = b"".join(struct.pack("<i", -1 if b is None else len(b)) for b in blobs)
        return lengths + b"".join(b or b"" for b in blobs)

    content = column([r.key for r in records]) + column([r.value for r in records])
    every = [header for r in records for header in r.headers or []]
    if every:
        content += b"".join(struct.pack("<i", len(r.headers or [])) for r in records)
        content += column([k.encode() for k, _ in every]) + column([v for _, v in every])
    return reference_crc32c(content)


@pytest.mark.parametrize("codec", Codec)
@settings(max_examples=examples(60), deadline=None)
@given(table=tables(), sequence=st.integers(0, 2**31 - 1))
def test_a_reader_finds_what_went_in(codec: Codec, table, sequence: int) -> None:
    records, columns = table
    encoded = encode(columns, codec, BASE_MS)
    stamped = stamp(encoded.blob, Identity(2**40, 7), sequence)
    batch, found = read(stamped)
    assert found == records
    assert encoded.records == len(records)
    assert batch.compression_type == codec.value
    assert batch.is_transactional
    assert not batch.is_control_batch
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2**40, 7, sequence)
    assert batch.first_timestamp == records[0].timestamp_ms
    assert batch.max_timestamp == max(r.timestamp_ms or 0 for r in records)
    assert batch.last_offset_delta == len(records) - 1


@settings(max_examples=examples(100), deadline=None)
@given(table=tables(), codecs=st.permutations(list(Codec)))
def test_the_digest_is_that_of_the_decoded_records(table, codecs: list[Codec]) -> None:
    records, columns = table
    one, other = (encode(columns, codec, BASE_MS) for codec in codecs[:2])
    assert one.digest == other.digest == reference_digest(records)
    _, found = read(stamp(one.blob, Identity(1, 1), 0))
    assert reference_digest(found) == one.digest


@settings(max_examples=examples(200), deadline=None)
@given(table=tables(), cuts=st.sets(st.integers(1, 79)), codec=st.sampled_from(Codec))
def test_many_record_batches_at_once_are_the_same_as_one_by_one(table, cuts, codec) -> None:
    _, columns = table
    edges = [0, *sorted(cut for cut in cuts if cut < len(columns)), len(columns)]
    spans = [BatchSpan(start, end) for start, end in itertools.pairwise(edges)]
    together = encode_spans(layout(columns, BASE_MS), spans, codec)
    alone = [encode(columns.slice(start, end), codec, BASE_MS) for start, end, _ in spans]
    assert together == alone


@settings(max_examples=examples(300), deadline=None)
@given(table=tables(), data=st.data())
def test_splitting_fills_each_record_batch_and_overfills_none(table, data: st.DataObject) -> None:
    _, columns = table
    rows = layout(columns, BASE_MS)
    all_of_it = HEADER_BYTES + int(record_sizes(rows, 0, len(rows)).sum())
    near = st.integers(-3, 3).map(lambda more: all_of_it + more)
    bytes_max = data.draw(st.one_of(st.integers(HEADER_BYTES, 3000), near))
    spans = list(split(rows, 0, len(rows), bytes_max))
    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == len(rows)
    for span in spans:
        one = encode(columns.slice(span.start, span.end), Codec.NONE, BASE_MS)
        size = HEADER_BYTES + int(record_sizes(rows, span.start, span.end).sum())
        assert len(one.blob) == size  # counted before a byte was encoded
        assert size <= bytes_max or span.end == span.start + 1
        if span.end < len(rows):
            more = encode(columns.slice(span.start, span.end + 1), Codec.NONE, BASE_MS)
            assert len(more.blob) > bytes_max


@settings(max_examples=examples(60), deadline=None)
@given(table=tables(), codec=st.sampled_from(Codec))
def test_stamping_again_changes_nothing_but_the_identity(table, codec: Codec) -> None:
    _, columns = table
    blob = encode(columns, codec, BASE_MS).blob
    first = stamp(pa.py_buffer(blob), Identity(3, 4), 5)
    second = stamp(memoryview(stamp(blob, Identity(9, 9), 99)), Identity(3, 4), 5)
    assert first == second
    assert first[HEADER_BYTES:] == blob[HEADER_BYTES:]
    assert len(first) == len(blob)
