"""A damaged record batch before the offset that a range begins with is found, too."""

from __future__ import annotations

import struct

import pyarrow as pa
from support.errors import raises

from eos.errors import AttemptFailedError
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.leader_stream import Piece, RangeProgress
from eos.kafka.range_reader import _decoded
from eos.kafka.read_amounts import ReadAmounts
from eos.kafka.records.column_reader import ColumnReader
from eos.kafka.records.columns import Columns
from eos.kafka.records.decompression import Scratch
from eos.kafka.records.record_batch import encode, stamp

MAGIC_AT = 16


def batch(base: int) -> bytearray:
    """Ten records. The base offset and the magic byte are not in the checksum."""
    values = pa.array([b"%d" % number for number in range(base, base + 10)], pa.binary())
    blob = bytearray(stamp(encode(Columns(values, values), Codec.NONE, 1).blob, Identity(1, 0), 0))
    struct.pack_into(">q", blob, 0, base)
    return blob


def offsets(*batches: bytearray) -> list[int]:
    """Of the records that a range from offset 5 on reads."""
    tp = TopicPartition("in", 0)
    piece = Piece(RangeProgress(tp, 5, 20, 20), memoryview(b"".join(batches)), (), 20)
    reader = ColumnReader("in", 0)
    found = list(_decoded(piece, reader, Scratch(), ReadAmounts()))
    found += filter(None, [reader.flush()])
    return [offset for each in found for offset in each.column("offset").to_pylist()]


def test_a_damaged_magic_byte_skips_no_records() -> None:
    first, second = batch(0), batch(10)
    assert offsets(first, second) == list(range(5, 20))
    first[MAGIC_AT] = 1
    with raises("record_batch_format_old", AttemptFailedError):
        offsets(first, second)
