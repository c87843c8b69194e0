"""Columns of record batches: the same records as the parser's; damage is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from support.errors import examples

from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec
from eos.kafka.records import column_reader
from eos.kafka.records.batch_headers import Batch, batches
from eos.kafka.records.column_reader import ColumnReader
from eos.kafka.records.compression import compress
from eos.kafka.records.decompression import BrokenPayloadError, unpack
from eos.kafka.records.parser import StoredRecord, stored_records

pytestmark = pytest.mark.usefixtures("each_library")

BLOB = st.one_of(st.none(), st.binary(max_size=20), st.just(b"\xe9" * 900))
NAMED = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=3))))
RECORD = st.tuples(st.integers(0, 2**41), BLOB, BLOB, NAMED)
RECORDS = st.lists(RECORD, min_size=1, max_size=30)


def record_batch(records, codec: Codec, base: int = 0, append_ms: int | None = None) -> Batch:
    """A record batch as kafka-python makes it, compressed by Kafka's framing of the codec."""
    builder = DefaultRecordBatchBuilder(2, 0, 1, 5, 3, 7, 1 << 30)
    for at, (time, key, value, headers) in enumerate(records):
        builder.append(at, time, key, value, headers)
    (found,) = batches(bytes(builder.build()))
    assert isinstance(found, Batch)
    last = base + found.last_offset - found.offset
    payload = compress(codec, bytes(found.payload))
    return found._replace(
        offset=base, last_offset=last, append_ms=append_ms, codec=codec.value, payload=payload
    )


def rows(found) -> list[tuple]:
    """The rows of Arrow batches in the form of `expected`."""
    listed = []
    for each in found:
        assert each.schema == column_reader.SCHEMA
        each.validate(full=True)
        times = each.column("timestamp").view(pa.int64()).to_pylist()
        for row, us in zip(each.drop_columns("timestamp").to_pylist(), times, strict=True):
            headers = row["headers"]
            assert headers is None or headers
            named = tuple((each["key"], each["value"]) for each in headers or ())
            listed.append(
                (row["offset"], us, row["timestampType"], row["key"], row["value"], named)
            )
            assert (row["topic"], row["partition"]) == ("orders", 3)
    return listed


def expected(record: StoredRecord, kind: int) -> tuple:
    us = min(max(record.timestamp_ms * 1000, -(2**63)), 2**63 - 1)
    return record.offset, us, kind, record.key, record.value, record.headers


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(RECORDS, st.sampled_from(list(Codec)), st.booleans()), max_size=4),
    st.integers(1, 40),
    st.one_of(st.integers(1, 3000), st.just(1 << 20)),
    st.integers(0, 130),
    st.integers(0, 130),
)
def test_the_columns_have_the_parsers_records(parts, rows_max, bytes_max, start, end) -> None:
    reader = ColumnReader("orders", 3, rows_max=rows_max, bytes_max=bytes_max)
    found, wanted, base = [], [], 0
    for records, codec, is_append_time in parts:
        batch = record_batch(records, codec, base, 1234 if is_append_time else None)
        kept = [each for each in stored_records(batch) if start <= each.offset < end]
        wanted += [expected(each, int(is_append_time)) for each in kept]
        found += reader.add(batch, unpack(batch.codec, batch.payload), start, end)
        base = batch.last_offset + 3
    rest = reader.flush()
    found += [rest] if rest is not None else []
    assert reader.flush() is None
    assert rows(found) == wanted
    assert all(0 < each.num_rows <= rows_max for each in found)
    for each in found:
        size = sum(each.column(name).nbytes for name in ("key", "value"))
        offsets_and_bits = 2 * (4 * (each.num_rows + 1) + each.num_rows // 8 + 1)
        assert each.num_rows == 1 or size <= bytes_max + offsets_and_bits


@settings(max_examples=examples(400), deadline=None)
@given(RECORDS, st.data())
def test_damage_is_refused_as_by_the_parser(records, data) -> None:
    batch = record_batch(records, Codec.NONE)
    plain = bytearray(batch.payload)
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    plain = plain[: data.draw(st.integers(0, len(plain)))] if data.draw(st.booleans()) else plain
    batch = batch._replace(payload=bytes(plain))
    try:
        wanted = [expected(each, 0) for each in stored_records(batch)]
    except BrokenPayloadError:
        wanted = None
    try:
        reader = ColumnReader("orders", 3)
        found = [*reader.add(batch, bytes(plain), 0, 1 << 40), reader.flush()]
        assert [each[1:] for each in rows(found)] == [each[1:] for each in wanted or ()]
    except BrokenPayloadError:
        found = None
    assert (found is None) == (wanted is None)


@settings(max_examples=examples(400), deadline=None)
@given(st.binary(max_size=200), st.integers(1, 50), st.integers(1, 300))
def test_any_bytes_are_rows_or_the_one_error(plain, count, bytes_max) -> None:
    batch = Batch(5, 500, Identity(-1, -1), -1, count, 0, False, "", plain, first_ms=9)
    reader = ColumnReader("orders", 3, rows_max=7, bytes_max=bytes_max)
    try:
        for each in reader.add(batch, plain, 0, 1000):
            each.validate(full=True)
    except BrokenPayloadError:
        return
    rest = reader.flush()
    assert rest is not None
    rest.validate(full=True)
