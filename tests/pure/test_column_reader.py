"""Records as columns: the corners, each damage by hand, and memory that is used again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eos.kafka.api import Identity
from eos.kafka.records.batch_headers import Batch
from eos.kafka.records.column_reader import SCHEMA, ColumnReader
from eos.kafka.records.decompression import BrokenPayloadError
from eos.kafka.records.parser import header_name

pytestmark = pytest.mark.usefixtures("each_library")
NO_KEY, NO_VALUE, NO_HEADERS = b"\x01", b"\x01", b"\x00"
DELTAS = b"\x00\x00"  # of the timestamp and of the offset


def number(value: int) -> bytes:
    unsigned, out = value << 1 if value >= 0 else (-value << 1) - 1, bytearray()
    while unsigned > 0x7F:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    return bytes([*out, unsigned])


def blob(data: bytes) -> bytes:
    return number(len(data)) + data


def record(*fields: bytes, more: int = 0) -> bytes:
    """A record with these fields after the attributes. Its length is wrong by `more`."""
    body = b"\0" + b"".join(fields)
    return number(len(body) + more) + body


def batch(count: int, **fields: object) -> Batch:
    known = {"offset": 5, "last_offset": 5 + max(count - 1, 0), "first_ms": 1000, **fields}
    made = Batch(5, 5, Identity(-1, -1), -1, count, 0, False, "", b"")
    return made._replace(**known)


def rows(data: bytes, of: Batch, **limits: int) -> list[pa.RecordBatch]:
    reader = ColumnReader("orders", 3, **limits)
    found = [*reader.add(of, data, 0, 1 << 62), reader.flush()]
    return [each for each in found if each is not None]


SOUND = record(DELTAS, blob(b"k"), blob(b"v"), NO_HEADERS)
DAMAGES = {
    "no record": b"",
    "a record is cut": SOUND[:-1],
    "an empty record": number(0),
    "a negative length": number(-1),
    "a length beyond the end": record(DELTAS, NO_KEY, NO_VALUE, NO_HEADERS, more=1),
    "a length before the end": record(DELTAS, NO_KEY, NO_VALUE, NO_HEADERS, more=-1) + b"\0",
    "bytes after the last field": record(DELTAS, NO_KEY, NO_VALUE, NO_HEADERS, b"\0"),
    "bytes after the headers": record(DELTAS, NO_KEY, NO_VALUE, number(1), blob(b"n"), b"\1\0"),
    "bytes after the last record": SOUND + b"\0",
    "a key beyond the record": record(DELTAS, number(9), b"k", NO_VALUE, NO_HEADERS) + b"\0" * 9,
    "the largest key": record(DELTAS, number(2**63 - 1), b"k", NO_VALUE, NO_HEADERS),
    "a negative number of headers": record(DELTAS, NO_KEY, NO_VALUE, number(-1)),
    "too many headers": record(DELTAS, NO_KEY, NO_VALUE, number(1 << 40)),
    "fewer headers than claimed": record(DELTAS, NO_KEY, NO_VALUE, number(2), blob(b"n"), b"\1"),
    "a header without a name": record(DELTAS, NO_KEY, NO_VALUE, number(1), b"\1", b"\1"),
    "an offset after the last": record(b"\0", number(1), NO_KEY, NO_VALUE, NO_HEADERS),
    "an offset before the first": record(b"\0", number(-1), NO_KEY, NO_VALUE, NO_HEADERS),
    "a number of 65 bits": record(b"\xff" * 9 + b"\2", b"\0", NO_KEY, NO_VALUE, NO_HEADERS),
    "a number of 11 bytes": record(b"\xff" * 10 + b"\0", b"\0", NO_KEY, NO_VALUE, NO_HEADERS),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_refused(damage: str) -> None:
    assert rows(SOUND, batch(1))[0].num_rows == 1
    with pytest.raises(BrokenPayloadError):
        rows(DAMAGES[damage], batch(1))


def test_a_batch_with_a_wrong_checksum_is_refused() -> None:
    with pytest.raises(BrokenPayloadError, match="checksum"):
        rows(SOUND, batch(1, is_sound=False))


def test_an_offset_beyond_64_bits_is_refused() -> None:
    last = 2**63 - 1
    sound = batch(1, offset=last, last_offset=last)
    reader = ColumnReader("orders", 3)
    assert list(reader.add(sound, SOUND, 0, last)) == []  # the end is exclusive
    after = record(b"\0", number(1), NO_KEY, NO_VALUE, NO_HEADERS)
    with pytest.raises(BrokenPayloadError):
        list(reader.add(sound._replace(last_offset=last + 1), after, 0, last))


def test_a_batch_that_compaction_emptied_has_no_rows() -> None:
    assert rows(b"", batch(0, last_offset=9)) == []


def test_a_row_has_what_spark_has() -> None:
    headers = number(2) + blob(b"a") + blob(b"1") + blob(b"a") + b"\1"
    data = SOUND + record(number(-7), number(2), NO_KEY, NO_VALUE, headers)
    (found,) = rows(data, batch(2, last_offset=8))
    assert found.schema == SCHEMA
    times = found.column("timestamp").view(pa.int64()).to_pylist()
    assert times == [1_000_000, 993_000]
    assert found.drop_columns("timestamp").to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "orders",
            "partition": 3,
            "offset": 5,
            "timestampType": 0,
            "headers": None,
        },
        {
            "key": None,
            "value": None,
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "timestampType": 0,
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        },
    ]


@pytest.mark.parametrize(
    ("first_ms", "delta", "us"),
    [
        (0, 1_700_000_000_000_000_000, 2**63 - 1),  # nanoseconds
        (2**63 - 1, 2**62, 2**63 - 1),
        (0, -(2**60), -(2**63)),
        (-(2**63), -1, -(2**63)),
        (2**63 - 1, -(2**63 - 1), 0),
    ],
)
def test_a_time_beyond_microseconds_is_the_nearest(first_ms: int, delta: int, us: int) -> None:
    data = record(number(delta), b"\0", NO_KEY, blob(b"v"), NO_HEADERS)
    (found,) = rows(data, batch(1, first_ms=first_ms))
    assert found.column("timestamp").view(pa.int64()).to_pylist() == [us]
    assert found.column("value").to_pylist() == [b"v"]


def test_the_brokers_time_replaces_the_producers() -> None:
    data = record(number(2**62), b"\0", NO_KEY, NO_VALUE, NO_HEADERS)
    (found,) = rows(data, batch(1, append_ms=77))
    assert found.column("timestamp").view(pa.int64()).to_pylist() == [77_000]
    assert found.column("timestampType").to_pylist() == [1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("\u00e9\u4e2d\U0001f600".encode(), "\u00e9\u4e2d\U0001f600"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xed\xa0\x80", "\ufffd"),  # a surrogate: Java replaces it by one character
        (b"\xe4\xb8", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
    ],
)
def test_a_header_name_that_is_not_ascii(name: bytes, text: str) -> None:
    data = record(DELTAS, NO_KEY, NO_VALUE, number(1), blob(name), blob(b"\xff"))
    (found,) = rows(data, batch(1))
    assert found.column("headers").to_pylist() == [[{"key": text, "value": b"\xff"}]]
    assert header_name(name) == text


def test_a_large_record_is_a_batch_of_its_own() -> None:
    """And the ones around it are as usual."""
    large = bytes(20_000)
    headers = number(1) + blob(b"n" * 3000) + blob(large)
    records = [
        record(b"\0", number(at), NO_KEY, blob(b"v" if at % 2 else large), each)
        for at, each in enumerate([NO_HEADERS, NO_HEADERS, headers, NO_HEADERS, NO_HEADERS])
    ]
    found = rows(b"".join(records), batch(5), bytes_max=100, rows_max=10)
    assert [each.column("offset").to_pylist() for each in found] == [[5], [6], [7], [8], [9]]
    sizes = [len(each.column("value")[0].as_py()) for each in found]
    assert sizes == [20_000, 1, 20_000, 1, 20_000]
    assert len(found[2].column("headers")[0].as_py()[0]["value"]) == 20_000


def test_a_batch_keeps_its_rows_while_others_are_read() -> None:
    """The memory of a batch is used again, but not before the batch is gone."""
    reader = ColumnReader("orders", 3, rows_max=10, bytes_max=1 << 20)
    held = []
    for turn in range(12):
        value = bytes([turn]) * 100_000
        data = b"".join(
            record(b"\0", number(at), blob(b"k"), blob(value), NO_HEADERS) for at in range(10)
        )
        held += reader.add(batch(10), data, 0, 1 << 62)
        held.append(reader.flush())
        if turn % 3 == 0:
            held = held[-1:]
    assert len(held) == 3
    for turn, each in zip((9, 10, 11), held, strict=True):
        assert each.column("value").to_pylist() == [bytes([turn]) * 100_000] * 10


@pytest.mark.parametrize("limits", [{"rows_max": 0}, {"bytes_max": 0}, {"bytes_max": 1 << 30}])
def test_impossible_limits(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="limits"):
        ColumnReader("orders", 3, **limits)
