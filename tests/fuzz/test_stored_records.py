"""Records of ledgers and dead letters: read as kafka-python reads them; damage is refused."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from eos.deadline import Deadline
from eos.errors import PromiseBrokenError
from eos.kafka import record_reader as module
from eos.kafka.api import TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.records.batch_headers import HEADER_BYTES, batches
from eos.kafka.records.compression import compress
from eos.kafka.records.decompression import BrokenPayloadError
from eos.kafka.records.parser import stored_records

BLOB = st.one_of(st.none(), st.binary(max_size=20), st.just(b"\xe9" * 9000))
NAMED = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=3))))
RECORD = st.tuples(st.integers(0, 2**41), BLOB, BLOB, NAMED)
RECORDS = st.lists(RECORD, min_size=1, max_size=8)
_CRC_AT, _CRC_FROM, _ATTRIBUTES_AT = 17, 21, 21


def built(records) -> bytes:
    """An uncompressed batch, by another library's hand."""
    made = DefaultRecordBatchBuilder(2, 0, True, 7, 3, 0, 1 << 20)
    for offset, (time_ms, key, value, headers) in enumerate(records):
        assert made.append(offset, time_ms, key, value, headers) is not None
    return bytes(made.build())


def sealed(header: bytes, payload: bytes, codec: Codec = Codec.NONE) -> bytes:
    """With the length, codec and checksum that fit."""
    blob = bytearray(header + payload)
    struct.pack_into(">i", blob, 8, len(blob) - 12)
    attributes = struct.unpack_from(">h", blob, _ATTRIBUTES_AT)[0]
    struct.pack_into(">h", blob, _ATTRIBUTES_AT, (attributes & ~7) | codec.value)
    struct.pack_into(">I", blob, _CRC_AT, google_crc32c.value(bytes(blob[_CRC_FROM:])))
    return bytes(blob)


def read(blob: bytes):
    return [each for batch in batches(blob) for each in stored_records(batch)]


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.sampled_from(Codec))
def test_every_codec_is_read_as_another_library_reads_the_plain_batch(records, codec) -> None:
    plain = built(records)
    batch = (7, 3, True, 0, len(records) == 1)
    expected = [
        (each.offset, each.timestamp, each.key, each.value, tuple(each.headers), *batch)
        for each in DefaultRecordBatch(plain)
    ]
    blob = sealed(plain[:HEADER_BYTES], bytes(compress(codec, plain[HEADER_BYTES:])), codec)
    assert read(blob) == expected


@settings(max_examples=300, deadline=None)
@given(RECORDS, st.sampled_from(Codec), st.data())
def test_damage_under_a_checksum_that_holds_is_records_or_the_one_error(records, codec, data):
    plain = built(records)
    payload = bytearray(compress(codec, plain[HEADER_BYTES:]))
    header = bytearray(plain[:HEADER_BYTES])
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from([payload, header]))
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    header[16] = 2  # the format
    blob = sealed(bytes(header), bytes(payload), codec)
    try:
        found = read(blob)
    except BrokenPayloadError:
        return
    assert all(isinstance(each.offset, int) and isinstance(each.headers, tuple) for each in found)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_records_or_the_one_error(raw) -> None:
    header = built([(5, b"k", b"v", [])])[:HEADER_BYTES]
    for blob in (raw, sealed(header, raw)):
        try:
            read(blob)
        except BrokenPayloadError:
            continue


def test_a_header_that_is_no_text_is_read_as_java_reads_it() -> None:
    plain = built([(5, b"k", b"v", [("name", b"x")])])
    wrong = plain[HEADER_BYTES:].replace(b"name", b"na\xffe")
    assert read(sealed(plain[:HEADER_BYTES], wrong))[0].headers == (("na\ufffde", b"x"),)


def test_the_error_names_partition_offset_and_remedy() -> None:
    blob = bytearray(built([(5, b"k", b"v", [])]))
    blob[-2] ^= 1
    (batch,) = batches(bytes(blob))
    with pytest.raises(PromiseBrokenError, match=r"t-3 at offset 0 can't") as caught:
        module._records(TopicPartition("t", 3), batch, range(1))
    assert "kafka-dump-log.sh" in caught.value.hint
    assert caught.value.code == "batch_unreadable"


@pytest.mark.parametrize("cut", [1, HEADER_BYTES, 200])
def test_an_answer_without_a_whole_batch_is_refused_and_not_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    blob = b"\x01" * 20 if cut == 1 else built([(5, b"k" * 200, b"v", [])])[:cut]
    answer = SimpleNamespace(error_code=0, aborted_transactions=None, records=blob)
    answers = iter([answer])
    monkeypatch.setattr(module, "fetch_once", lambda *_: next(answers))
    soon = Deadline.after_ms(60_000)
    with pytest.raises(PromiseBrokenError, match="no complete record batch"):
        module.read_records(None, TopicPartition("t", 3), 0, 1, True, soon, 9, 1 << 20)


def test_what_is_after_the_range_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Fetch response of 1 MB may have thousands of record batches after the wanted one."""

    one, further = built([(5, b"k", b"v", [])]), bytearray(built([(5, b"k", b"v", [])]) * 3)
    for number in range(3):
        struct.pack_into(">q", further, number * len(one), number + 1)
    blob = one + bytes(further)
    answer = SimpleNamespace(error_code=0, aborted_transactions=None, records=blob)
    monkeypatch.setattr(module, "fetch_once", lambda *_: answer)
    parsed = []

    def counted(blob: bytes):
        for batch in batches(blob):
            parsed.append(batch)
            yield batch

    monkeypatch.setattr(module, "batches", counted)
    soon = Deadline.after_ms(60_000)
    (found,) = module.read_records(None, TopicPartition("t", 3), 0, 1, True, soon, 9, 1 << 20)
    assert found.key == b"k"
    assert len(parsed) <= 2
