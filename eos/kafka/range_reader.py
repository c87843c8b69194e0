"""Decode the committed records of fetched offset ranges into Arrow columns.

As in a `read_committed` consumer, transaction markers and aborted transactions are skipped. A
record batch may begin before a range or end after it. Records outside the range are skipped, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from eos.kafka.leader_stream import Piece, RangeProgress
from eos.kafka.range_fetcher import RangeFetcher
from eos.kafka.read_amounts import ReadAmounts
from eos.kafka.read_errors import old_format, unreadable
from eos.kafka.records.batch_headers import HEADER_BYTES, Old, Visibility, batches
from eos.kafka.records.column_reader import ColumnReader
from eos.kafka.records.decompression import BrokenPayloadError, Scratch, unpack_into

ROWS_MAX, BYTES_MAX = 50_000, 8 << 20  # of an Arrow batch
# Arrow batches below both limits are joined. Otherwise each small partition would have its own.
_SMALL_ROWS, _SMALL_BYTES = 5_000, 1 << 20


def read_columns(
    fetcher: RangeFetcher,
    *,
    rows_max: int = ROWS_MAX,
    bytes_max: int = BYTES_MAX,
    amounts: ReadAmounts | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the fetcher's ranges as Arrow batches, with Spark's Kafka columns.

    Ranges follow each other, each in offset order. Small batches of several ranges are joined. What
    was read is added to `amounts`.
    """
    return _joined(_each(fetcher, rows_max, bytes_max, amounts or ReadAmounts()))


def _each(
    fetcher: RangeFetcher, rows_max: int, bytes_max: int, amounts: ReadAmounts
) -> Iterator[pa.RecordBatch]:
    scratch = Scratch()
    progress: RangeProgress | None = None
    reader: ColumnReader | None = None
    pieces = fetcher.pieces()
    try:
        for piece in pieces:
            if reader is None or piece.progress is not progress:
                yield from _rest(reader, amounts)
                progress = piece.progress
                topic, number = progress.partition
                reader = ColumnReader(topic, number, rows_max=rows_max, bytes_max=bytes_max)
            yield from _decoded(piece, reader, scratch, amounts)
        yield from _rest(reader, amounts)
    finally:
        pieces.close()


def _rest(reader: ColumnReader | None, amounts: ReadAmounts) -> Iterator[pa.RecordBatch]:
    rest = None if reader is None else reader.flush()
    if reader is not None and rest is not None:
        amounts.records[reader.topic] += rest.num_rows
        yield rest


def _decoded(
    piece: Piece, reader: ColumnReader, scratch: Scratch, amounts: ReadAmounts
) -> Iterator[pa.RecordBatch]:
    """Decode the record batches of a piece, and yield each Arrow batch that is full.

    Raise PromiseBrokenError if a record batch has a wrong checksum or can't be decoded."""
    partition, start, end = piece.progress.partition, piece.progress.position, piece.progress.end
    visibility = Visibility(piece.aborted)
    reached = start
    for batch in batches(piece.records):
        if reached >= end:
            return
        reached = max(reached, batch.last_offset + 1)
        # A broker's response begins with the record batch that has the offset `start`. So an old
        # format before it is damage, which the client of Spark's source finds by its checksum.
        if isinstance(batch, Old):
            raise old_format(partition, batch.last_offset)
        if batch.offset >= end:
            return
        if not batch.is_sound:
            raise unreadable(partition, batch.last_offset, "its checksum or its header is wrong")
        if not (visibility.of(batch) and batch.records and batch.last_offset >= start):
            continue
        amounts.bytes[partition.topic] += HEADER_BYTES + len(batch.payload)
        try:
            records = unpack_into(batch.codec, batch.payload, scratch)
            for full in reader.add(batch, records, start, end):
                amounts.records[reader.topic] += full.num_rows
                yield full
        except BrokenPayloadError as error:
            raise unreadable(partition, batch.last_offset, str(error)) from error


def _joined(each: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in each:
        is_small = batch.num_rows < _SMALL_ROWS and batch.get_total_buffer_size() < _SMALL_BYTES
        if is_small:
            small.append(batch)
            rows += batch.num_rows
            size += batch.get_total_buffer_size()
        if not is_small or rows >= _SMALL_ROWS or size >= _SMALL_BYTES:
            yield from _join(small)
            small, rows, size = [], 0, 0
        if not is_small:
            yield batch
    yield from _join(small)


def _join(small: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(small) < 2:
        return small
    return list(pa.Table.from_batches(small).combine_chunks().to_batches())
