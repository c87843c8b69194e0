"""Byte for byte: the header's fields, the corners of Arrow's columns, and what is refused."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from support.errors import raises

from eos.kafka.api import Identity
from eos.kafka.compression_type import Codec
from eos.kafka.records.columns import Columns
from eos.kafka.records.compression import compress
from eos.kafka.records.record_batch import (
    HEADER_BYTES,
    BatchSpan,
    encode,
    encode_spans,
    stamp,
)
from eos.kafka.records.sizes import layout

pytestmark = pytest.mark.usefixtures("each_library")

HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def columns(*values: bytes | None, **others: object) -> Columns:
    key = others.pop("key", None)
    keys = pa.nulls(len(values)) if key is None else key
    return Columns(keys, pa.array(values, pa.binary()), **others)  # type: ignore[arg-type]


def test_a_record_batch_written_by_hand() -> None:
    blob = encode(columns(b"v", key=pa.array([b"ke"])), Codec.NONE, 5).blob
    record = b"\x00\x00\x00\x04ke\x02v\x00"  # attributes, two deltas, key, value, no headers
    expected = (
        struct.pack(">qiib", 0, 49 + 1 + len(record), -1, 2)
        + b"\0\0\0\0"
        + struct.pack(">hiqqqhii", 0, 0, 5, 5, -1, -1, -1, 1)
        + bytes([len(record) * 2])
        + record
    )
    assert blob == expected


def test_a_tombstone_written_by_hand() -> None:
    blob = encode(columns(None), Codec.NONE).blob
    assert blob[HEADER_BYTES:] == b"\x0c\x00\x00\x00\x01\x01\x00"


def test_headers_written_by_hand() -> None:
    listed = pa.array([[("a", b"1"), ("a", None)]], HEADER_LIST)
    blob = encode(columns(b"", headers=listed), Codec.NONE).blob
    assert blob[HEADER_BYTES:] == b"\x1a\x00\x00\x00\x01\x00\x04\x02a\x021\x02a\x01"


def test_stamping_sets_identity_sequence_crc_and_the_transactional_bit_only() -> None:
    blob = encode(columns(b"v" * 500), Codec.LZ4, 5).blob
    stamped = stamp(blob, Identity(0x0102030405060708, 0x090A), 0x0B0C0D0E)
    assert stamped[:17] == blob[:17]
    assert stamped[21:23] == b"\x00\x13"  # lz4, transactional
    assert stamped[23:43] == blob[23:43]
    assert stamped[43:57] == bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14])
    assert stamped[57:] == blob[57:]


def test_the_crc_is_castagnolis() -> None:
    def crc32c(data: bytes) -> int:
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF

    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    stamped = stamp(encode(columns(b"v"), Codec.NONE).blob, Identity(1, 2), 3)
    assert struct.unpack(">I", stamped[17:21])[0] == crc32c(stamped[21:])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer])
def test_stamp_takes_any_buffer(kind) -> None:
    blob = encode(columns(b"v"), Codec.NONE).blob
    assert stamp(kind(blob), Identity(1, 2), 3) == stamp(blob, Identity(1, 2), 3)


def test_the_base_timestamp_is_the_first_records_and_deltas_may_be_negative() -> None:
    times = pa.array([1000, 999, None, 2000], pa.int64())
    blob = encode(columns(b"", b"", b"", b"", timestamp=times), Codec.NONE, 1500).blob
    base, latest = struct.unpack(">qq", blob[27:43])
    assert (base, latest) == (1000, 2000)
    # The second record's timestamp delta is -1, a zigzag 1.
    assert blob[HEADER_BYTES + 7 :][:4] == b"\x0c\x00\x01\x02"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_every_byte_type_of_arrow_is_the_same_record(kind: pa.DataType) -> None:
    words = ["a", None, "", "h\u00e9"]
    raw = pa.array([None if w is None else w.encode() for w in words], pa.binary())
    expected = encode(Columns(raw, raw), Codec.NONE)
    array = pa.array([None, "x", *words, "x"], pa.string()).cast(kind).slice(2, 4)
    assert encode(Columns(array, array), Codec.NONE) == expected


def test_bytes_beneath_a_null_are_not_written() -> None:
    validity = pa.py_buffer(b"\x05")  # the middle one of three is null, but has two bytes
    offsets = pa.py_buffer(struct.pack("<4i", 0, 1, 3, 4))
    array = pa.BinaryArray.from_buffers(pa.binary(), 3, [validity, offsets, pa.py_buffer(b"a??b")])
    expected = pa.array([b"a", None, b"b"], pa.binary())
    assert encode(Columns(array, array), Codec.NONE) == encode(
        Columns(expected, expected), Codec.NONE
    )


def flat(records: list[list[tuple[bytes | None, bytes | None]] | None]) -> pa.Array:
    """Each record's keys and then its values."""
    lists = [r and [k for k, _ in r] + [v for _, v in r] for r in records]
    return pa.array(lists, pa.list_(pa.binary()))


def test_a_header_without_a_key_is_refused_in_a_flat_list_too() -> None:
    with raises("header_key_null"):
        encode(columns(b"v", headers=flat([[(None, b"v")]])), Codec.NONE)


def test_a_flat_list_of_odd_length_is_a_fault_of_ours() -> None:
    odd = pa.array([[b"k", b"v", b"k"]], pa.list_(pa.binary()))
    with pytest.raises(ValueError, match="different numbers of header keys"):
        encode(columns(b"v", headers=odd), Codec.NONE)


def test_headers_beneath_a_null_list_are_not_written() -> None:
    structs = pa.array([("a", b"1"), ("?", b"?"), ("b", None)], HEADER_LIST.value_type)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), structs, mask=pa.array([False, True, False])
    )
    expected = pa.array([[("a", b"1")], None, [("b", None)]], HEADER_LIST)
    some = [b"", b"", b""]
    assert encode(columns(*some, headers=lists), Codec.NONE) == encode(
        columns(*some, headers=expected), Codec.NONE
    )


def test_no_headers_null_headers_and_empty_headers_are_the_same() -> None:
    absent = encode(columns(b"v"), Codec.NONE)
    for lists in ([None], [[]]):
        listed = pa.array(lists, HEADER_LIST)
        assert encode(columns(b"v", headers=listed), Codec.NONE) == absent
    assert encode(columns(b"v", headers=pa.nulls(1)), Codec.NONE) == absent


def test_a_header_without_a_key_is_refused() -> None:
    for header in ([(None, b"v")], [None]):
        with raises("header_key_null"):
            encode(columns(b"v", headers=pa.array([header], HEADER_LIST)), Codec.NONE)


@pytest.mark.parametrize("column", ["key", "value"])
def test_a_column_of_numbers_is_refused_by_name(column: str) -> None:
    arrays = {"key": pa.nulls(1), "value": pa.nulls(1), column: pa.array([1])}
    with raises("record_column_type_invalid") as caught:
        encode(Columns(**arrays), Codec.NONE)
    assert caught.value.fields == {"column": column, "type": "int64"}


def test_headers_of_another_type_are_refused() -> None:
    with raises("headers_column_type_invalid"):
        encode(columns(b"v", headers=pa.array([{"a": "b"}])), Codec.NONE)


def test_the_digest_tells_null_from_empty_and_key_from_value() -> None:
    def digest(key: list[bytes | None], value: list[bytes | None]) -> int:
        columns = Columns(pa.array(key, pa.binary()), pa.array(value, pa.binary()))
        return encode(columns, Codec.NONE).digest

    all_of_them = [
        digest([None], [None]),
        digest([None], [b""]),
        digest([b""], [None]),
        digest([b""], [b""]),
        digest([b"a"], [b""]),
        digest([b""], [b"a"]),
        digest([b"a", b"b"], [b"", b""]),
        digest([b"ab", b""], [b"", b""]),
        digest([b"b", b"a"], [b"", b""]),
    ]
    assert len(set(all_of_them)) == len(all_of_them)
    assert all(0 <= each < 2**32 for each in all_of_them)


def test_the_digest_ignores_codec_and_timestamps() -> None:
    times = pa.array([1, 2], pa.int64())
    digests = {encode(columns(b"a", b"b"), codec, 9).digest for codec in Codec}
    digests.add(encode(columns(b"a", b"b", timestamp=times), Codec.NONE).digest)
    assert len(digests) == 1


@pytest.mark.parametrize("codec", [c for c in Codec if c is not Codec.NONE])
def test_what_compression_makes_too_large_is_left_uncompressed(codec: Codec) -> None:
    noise = columns(random.Random(1).randbytes(5000))
    plain = encode(noise, Codec.NONE).blob
    assert len(encode(noise, codec).blob) > len(plain)  # else this test shows nothing
    rows = layout(noise, 0)
    assert encode_spans(rows, [BatchSpan(0, 1, len(plain))], codec)[0].blob == plain
    # One byte less, and neither fits: it comes back as it was asked for, to be refused.
    too_large = encode_spans(rows, [BatchSpan(0, 1, len(plain) - 1)], codec)[0].blob
    assert len(too_large) > len(plain)


def test_lz4_blocks_are_independent() -> None:
    # Linked blocks make the broker answer UNKNOWN_SERVER_ERROR.
    frame = compress(Codec.LZ4, b"x" * 200_000)
    assert frame[:4] == struct.pack("<I", 0x184D2204)
    assert frame[4] & 0x20


def test_snappy_is_framed_as_snappy_java_does() -> None:
    stream = compress(Codec.SNAPPY, b"x" * 40_000)
    assert stream[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first = struct.unpack(">i", stream[16:20])[0]
    second = struct.unpack(">i", stream[20 + first : 24 + first])[0]
    assert len(stream) == 24 + first + second  # two blocks: 32 KiB and the rest


def test_codecs_are_named_as_kafka_names_them() -> None:
    assert [Codec.of(n).value for n in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
