"""How `eos verify` reads a log that is damaged, without a broker."""

from __future__ import annotations

import struct
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support.errors import raises

from eos.errors import PromiseBrokenError
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.fetch import FetchedBytes
from eos.kafka.records.batch_headers import BatchHeader
from eos.kafka.records.record_batch import Columns, encode, stamp
from eos.verify.log_reader import Reader

AT = TopicPartition("out", 0)


def log_of(*offsets: int) -> bytearray:
    """A log of record batches with one record each."""
    value = pa.array([b"value"], pa.binary())
    blob = encode(Columns(key=pa.nulls(1, pa.binary()), value=value), Codec.NONE, 0).blob
    found = bytearray()
    for offset in offsets:
        one = bytearray(stamp(blob, Identity(1, 0), offset))
        one[:8] = struct.pack(">q", offset)
        found += one
    return found


def read(blob: bytes, start: int, end: int) -> list[int]:
    asked = []

    def fetch(_at: TopicPartition, position: int, *_: object) -> FetchedBytes:
        asked.append(position)
        assert len(asked) < 9, "it asks for ever"
        return FetchedBytes(blob, ())

    client: Any = SimpleNamespace(fetch=fetch)
    with closing(Reader(client)) as reader:
        return [
            header.batch.offset
            for found in reader.scan(AT, start, end)
            for header in found
            if isinstance(header, BatchHeader)
        ]


def test_a_log_is_read_to_its_end() -> None:
    assert read(bytes(log_of(3, 4, 5)), 3, 6) == [3, 4, 5]


@pytest.mark.parametrize("length", [0, 2**20, -1])
def test_a_record_batch_with_a_damaged_length_is_an_error_at_once(length: int) -> None:
    """The broker returns the same bytes again, however often it is asked."""
    blob = log_of(3)
    blob[8:12] = struct.pack(">i", length)
    with raises("batch_unreadable", PromiseBrokenError) as found:
        read(bytes(blob), 3, 6)
    assert found.value.fields["offset"] == 3


def test_a_record_batch_before_the_position_is_an_error_at_once() -> None:
    with raises("batch_unreadable", PromiseBrokenError):
        read(bytes(log_of(0)), 3, 6)
