"""Reading record batches back: what is decoded has the digest that was encoded, or none."""

from __future__ import annotations

import struct

import google_crc32c
import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec
from eos.kafka.records import decompression as unpacking
from eos.kafka.records.batch_headers import Batch, Old, Visibility, batches
from eos.kafka.records.compression import compress
from eos.kafka.records.decompression import BrokenPayloadError, unpack
from eos.kafka.records.record_batch import HEADER_BYTES, Columns, encode, stamp
from eos.verify.records import digests

TEXT = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=150, max_size=9000))
HEADERS = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=3))))
RECORD = st.tuples(TEXT, TEXT, st.one_of(st.just([]), HEADERS), st.integers(0, 2**41))
BATCHES = st.lists(st.lists(RECORD, min_size=1, max_size=8), min_size=1, max_size=6)
ME = Identity(77, 3)


def encoded(records, codec=Codec.NONE):
    key, value, headers, timestamp = zip(*records, strict=True)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    named = [[{"key": k, "value": v} for k, v in each] for each in headers]
    columns = Columns(
        pa.array(key, pa.binary()),
        pa.array(value, pa.binary()),
        pa.array(named, kind),
        pa.array(timestamp, pa.int64()),
    )
    return encode(columns, codec, 5)


@settings(max_examples=40, deadline=None)
@given(BATCHES, st.sampled_from(Codec))
def test_what_is_read_back_has_the_digest_that_was_written(lists, codec):
    made = [encoded(records, codec) for records in lists]
    blob = b"".join(stamp(each.blob, ME, 10 * n) for n, each in enumerate(made))
    cut = blob[: len(made[0].blob) - 1]  # the broker cuts the last one anywhere
    found = list(batches(blob + cut))
    assert [each.sequence for each in found] == [10 * n for n in range(len(made))]
    assert {(each.identity, each.is_sound, each.marker) for each in found} == {(ME, True, "")}
    assert [each.records for each in found] == [each.records for each in made]
    plain = [unpack(each.codec, each.payload) for each in found]
    assert digests(plain, [each.records for each in found]) == [each.digest for each in made]


@settings(max_examples=40, deadline=None)
@given(BATCHES, st.data())
def test_what_is_damaged_is_told_and_spares_the_others(lists, data):
    made = [encoded(records) for records in lists]
    which = data.draw(st.integers(0, len(made) - 1))
    payloads = [bytearray(each.blob[HEADER_BYTES:]) for each in made]
    at = data.draw(st.integers(0, len(payloads[which]) - 1))
    payloads[which][at] ^= 1 << data.draw(st.integers(0, 7))
    found = digests(list(map(bytes, payloads)), [each.records for each in made])
    for number, (digest, each) in enumerate(zip(found, made, strict=True)):
        if number != which:
            assert digest == each.digest
    header = bytearray(stamp(made[which].blob, ME, 0)[:HEADER_BYTES])
    (read,) = batches(bytes(header + payloads[which]))
    assert not read.is_sound


def test_a_bit_of_the_header_is_covered_but_for_where_the_broker_writes():
    blob = stamp(encoded([(b"k", b"v", [], 7)]).blob, ME, 0)
    for at in range(21, HEADER_BYTES):
        changed = bytearray(blob)
        changed[at] ^= 4
        assert not next(batches(bytes(changed))).is_sound, at


def test_counts_that_are_wrong_have_no_digest():
    made = encoded([(b"k", b"v", [], 7)] * 3)
    payload = made.blob[HEADER_BYTES:]
    assert digests([payload, payload, payload], [3, 2, 4]) == [made.digest, None, None]
    assert digests([payload + b"\0", b""], [3, 0]) == [None, None]


def test_many_headers_are_claimed_and_none_is_there():
    """A length, attributes, two deltas, no key, no value, 2^28 headers."""
    assert digests([bytes([20, 0, 0, 0, 1, 1, 0x80, 0x80, 0x80, 0x80, 2])], [1]) == [None]


@pytest.mark.parametrize("place", [4, 6])
def test_a_length_that_leads_out_of_its_record(place):
    """Of a key or a value; the record behind it must not be read in its stead."""
    record = [18, 0, 0, 0, 2, 65, 2, 66, 0, 0]  # lengths of 1; a byte too many at the end
    wrong = list(record)
    wrong[place] = 100
    payload = bytes(wrong) + bytes(record) * 20
    assert digests([payload, bytes(record) * 2], [21, 2])[0] is None
    assert digests([bytes(record) * 2], [2]) != [None]


def test_what_others_compress():
    data = b"0123456789" * 5000
    linked = lz4.frame.compress(data, block_linked=True, store_size=False)
    stream = zstandard.ZstdCompressor().compressobj()
    unsized = stream.compress(data) + stream.flush()
    plain_snappy = pa.Codec("snappy").compress(data, asbytes=True)
    for codec, payload in ((3, linked), (4, unsized), (2, plain_snappy)):
        assert unpack(codec, np.frombuffer(payload, np.uint8)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_is_no_stream_or_too_large_is_refused(codec, monkeypatch):
    data = np.zeros(100_000, np.uint8)
    payload = np.frombuffer(bytes(compress(codec, data)), np.uint8)
    assert unpack(codec.value, payload) == data.tobytes()
    for broken in (payload[: len(payload) // 2], payload[1:], payload[:0]):
        try:
            found = unpack(codec.value, broken)
        except BrokenPayloadError:
            continue
        assert found != data.tobytes()
    monkeypatch.setattr(unpacking, "BYTES_MAX", 50_000)
    with pytest.raises(BrokenPayloadError):
        unpack(codec.value, payload)


def test_older_formats_are_told_apart():
    old = struct.pack(">qiIbbqii", 41, 22, 0, 1, 0, 7, -1, -1)
    blob = old + stamp(encoded([(b"k", b"v", [], 7)]).blob, ME, 0)
    first, second = batches(blob)
    assert first == Old(41)
    assert isinstance(second, Batch)


def control(offset, identity, kind):
    key = struct.pack(">hh", 0, kind)
    body = bytes([0, 0, 0, 8]) + key + bytes([12]) + bytes(6) + bytes([0])
    record = bytes([2 * len(body)]) + body
    tail = struct.pack(">hiqqqhii", 0x30, 0, 1, 1, *identity, -1, 1) + record
    crc = google_crc32c.value(tail)
    return struct.pack(">qiibI", offset, 9 + len(tail), 0, 2, crc) + tail


def test_who_is_seen():
    def data(offset, identity):
        return (
            struct.pack(">q", offset) + stamp(encoded([(b"k", b"v", [], 7)]).blob, identity, 0)[8:]
        )

    mine, other = Identity(1, 0), Identity(2, 0)
    log = [data(0, mine), data(1, other), control(2, mine, 0), data(3, mine), control(4, mine, 1)]
    found = list(batches(b"".join(log)))
    assert [each.marker for each in found] == ["", "", "ABORT", "", "COMMIT"]
    shown = Visibility([(1, 0)])
    assert [shown.of(each) for each in found] == [False, True, False, True, False]
