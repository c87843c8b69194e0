"""Encode rows as Kafka record batches.

The stage runs in a Spark task inside `mapInArrow`, or in the process that replays dead letters. It
uses neither the network nor Spark. Each task also yields a manifest: how many records it encoded
for each target partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of
from eos.encode.chunks import chunks
from eos.encode.grouping import grouped
from eos.encode.partitioner import Turn
from eos.encode.record_errors import SOURCE_COLUMNS, Refusal
from eos.encode.sink_spec import HEADERS_COLUMN, SinkSpec
from eos.encode.sinks import chosen, read, targets_of
from eos.encode.split import split
from eos.kafka.records.record_batch import BatchSpan, EncodedBatch, encode_spans
from eos.kafka.target_partitions import Targets
from eos.native.memory import POOL

MANIFEST_TARGET = -1

# The rows that the stage yields: one for each record batch, and at the end the manifest.
SCHEMA = pa.schema(
    [
        pa.field("writer", pa.int32(), nullable=False),
        pa.field("target", pa.int32(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("records", pa.int32(), nullable=False),
        pa.field("digest", pa.int64(), nullable=False),
        pa.field("blob", pa.binary(), nullable=False),
    ]
)
# The same schema as text, for Spark.
SPARK_SCHEMA = (
    "writer int, target int, source int, position bigint, records int, digest bigint, blob binary"
)


class CountedRows:
    """Rows to encode. `records_read` counts the source records from which they are made."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self.records_read = 0
        self._rows = self._counted(rows)

    def through(
        self, step: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> CountedRows:
        """Apply a transform step to the rows, and return self. Only the rows before the step are
        counted."""
        self._rows = step(self._rows)
        return self

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._rows

    def __next__(self) -> pa.RecordBatch:
        return next(self._rows)

    def _counted(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            self.records_read += batch.num_rows
            yield batch


@dataclass(frozen=True, slots=True)
class EncodeStage:
    """The settings of the encode tasks of one attempt. The object can be pickled.

    Guarantees: the same rows, task id and stage yield the same bytes. Within a target partition,
    records keep the order of the rows. A record batch is never larger than `record_batch_bytes_max`
    or its topic's max.message.bytes. The last row is the manifest, even if a task has no rows.

    Not guaranteed: an order among records of different target partitions.
    """

    sinks: tuple[SinkSpec, ...]
    targets: Targets
    n_writers: int
    base_timestamp_ms: int  # the attempt's time, for records without a timestamp of their own
    record_batch_bytes_max: int = 1 << 20  # the profile's max_request_bytes; topics may allow less
    # Number of the first partition for records without a key. It is another one in each
    # micro-batch. Otherwise many small micro-batches would all begin with the same partition.
    turn: int = 0
    # Rows are collected up to these limits before they are encoded, so that record batches don't
    # become tiny if there are many target partitions.
    chunk_bytes_max: int = 8 << 20
    chunk_rows_max: int = 50_000
    source_topic: str = ""  # source topic of all rows; "" if rows have a topic column

    def encode(self, batches: Iterator[pa.RecordBatch], task_id: int) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of all sinks for these rows, and then the manifest."""
        task = _Task(self, task_id)
        needed = frozenset[str]().union(*(sink.columns for sink in self.sinks))
        welcome = frozenset([*SOURCE_COLUMNS, HEADERS_COLUMN])
        bounds = self.chunk_bytes_max, self.chunk_rows_max
        for chunk in chunks(batches, needed, welcome, *bounds):
            for index, sink in enumerate(self.sinks):
                rows = chosen(sink, chunk)
                if rows.num_rows:
                    yield task.encode(index, rows)
        # If the rows are no CountedRows, Spark counts the source records.
        yield task.manifest(batches.records_read if isinstance(batches, CountedRows) else 0)


@dataclass(slots=True)
class _Task:
    """The state of one encode task: what it has encoded so far."""

    stage: EncodeStage
    task_id: int
    position: int = 0
    records: dict[int, int] = field(default_factory=dict)  # target -> records
    turns: dict[int, dict[str, Turn]] = field(default_factory=dict)  # sink -> topic -> turn

    def encode(self, index: int, chunk: pa.Table) -> pa.RecordBatch:
        """Return the record batches of one sink for a chunk of rows. `index` is the sink's
        number."""
        stage, sink = self.stage, self.stage.sinks[index]
        columns = read(sink, chunk)
        turns = self.turns.setdefault(index, {})
        first_turn = stage.turn + self.task_id
        refusal = Refusal(chunk, sink.key_column, stage.source_topic)
        limit = stage.record_batch_bytes_max
        of_row = targets_of(sink, chunk, columns, stage.targets, limit, turns, first_turn, refusal)
        rows, groups, order = grouped(columns, of_row, stage.base_timestamp_ms)
        spans: list[BatchSpan] = []
        span_targets: list[int] = []
        for target, start, end in groups:
            limit = min(stage.record_batch_bytes_max, stage.targets.record_batch_bytes_max[target])
            cut = list(split(rows, start, end, limit))
            spans += cut
            span_targets += [target] * len(cut)
        encoded = encode_spans(rows, spans, sink.codec)
        for span, target, batch in zip(spans, span_targets, encoded, strict=True):
            if batch.size > span.bytes_max:
                row = span.start if order is None else int(order[span.start])
                self._refuse(refusal, row, target, batch.size)
        # All record batches are one Arrow batch. Its size is bounded, because a chunk's is, and
        # encoding hardly ever adds to it.
        return self._record_batches(span_targets, encoded)

    def _refuse(self, refusal: Refusal, row: int, target: int, size: int) -> None:
        of_topic = self.stage.targets.record_batch_bytes_max[target]
        partition = self.stage.targets.partitions[target]
        setting = f"max.message.bytes of topic {partition.topic}"
        if self.stage.record_batch_bytes_max < of_topic:
            setting = "max_request_bytes"
        limit = min(of_topic, self.stage.record_batch_bytes_max)
        refusal.too_large(row, partition, self.task_id, size, limit, setting)

    def _record_batches(self, targets: list[int], encoded: list[EncodedBatch]) -> pa.RecordBatch:
        for target, batch in zip(targets, encoded, strict=True):
            self.records[target] = self.records.get(target, 0) + batch.records
        writers = [target % self.stage.n_writers for target in targets]
        return self._batch(writers, targets, encoded)

    def manifest(self, records_read: int) -> pa.RecordBatch:
        """Return the manifest row: how many records this task encoded for each target partition.

        Its `records` column has the number of source records that were read.
        """
        pairs = np.array(sorted(self.records.items()), "<i4")
        row = EncodedBatch(b"", pairs.tobytes(), records_read, 0)
        return self._batch([self.stage.n_writers], [MANIFEST_TARGET], [row])

    def _batch(
        self, writers: list[int], targets: list[int], rows: list[EncodedBatch]
    ) -> pa.RecordBatch:
        first, self.position = self.position, self.position + len(rows)
        columns: list[Any] = [
            writers,
            targets,
            [self.task_id] * len(rows),
            range(first, self.position),
            [row.records for row in rows],
            [row.digest for row in rows],
        ]
        arrays = [array_of(c, SCHEMA.field(at).type) for at, c in enumerate(columns)]
        blobs = _blobs(rows)
        return pa.RecordBatch.from_arrays([*arrays, blobs], schema=SCHEMA)


def _blobs(rows: Sequence[EncodedBatch]) -> Any:
    """Return an Arrow column of the record batches' bytes. Its memory is pooled, and used again
    when the column is freed."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([row.size for row in rows], out=offsets[1:])
    data = POOL.lease(int(offsets[-1]))
    view = memoryview(data)
    for row, start, end in zip(rows, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        middle = start + len(row.head)
        view[start:middle], view[middle:end] = row.head, memoryview(row.payload).cast("B")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(rows), buffers, null_count=0)


def read_manifest(blob: bytes) -> dict[int, int]:
    """Return how many records one encode task encoded for each target partition."""
    pairs = np.frombuffer(blob, "<i4").reshape(-1, 2)
    return {int(target): int(records) for target, records in pairs}
