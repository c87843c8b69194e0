"""Stamps on their way to the tasks that judge them: cut by shard, in the Python of the task that
read them.

Where several tasks judge, each shard's part of a chunk is packed into one row, and Spark shuffles
few large rows instead of many small ones, each of which would cost it as much.

Imported by every Python worker, so nothing here loads pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.arrow import array_of, binaries, scalar_of
from eos.dedup.buckets import SHARDS
from eos.dedup.crc32 import crc32

# As they come out of the JVM: `at` is partition and offset in one number (`place`). The last column
# is there only where the source has several topics.
STAMPS = pa.schema(
    [
        ("at", pa.int64()),
        ("producer", pa.binary()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
        ("topic", pa.string()),
    ]
)
# What `Gather` yields, in Spark's words: a shard's part of a chunk, as an Arrow message without
# its schema, which both sides know.
PACKED = "shard int, blob binary"
Part = tuple[int, pa.RecordBatch]  # of a shard, by its number
_PACKED = pa.schema([("shard", pa.int32()), ("blob", pa.binary())])
# Of a chunk: as many as Spark hands over at a time. A task holds it a few times over (20 MB, where
# ids are short), and more rows at a time take longer, not less.
CHUNK_ROWS_MAX = 50_000
CHUNK_BYTES_MAX = 4 << 20


def schema(*, is_of_one_topic: bool) -> pa.Schema:
    return STAMPS.remove(STAMPS.get_field_index("topic")) if is_of_one_topic else STAMPS


@dataclass(frozen=True, slots=True)
class Gather:
    """The map side, as Spark calls an Arrow function over batches: stamps in, packed rows out. Of
    one shard they keep their order."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks(batches, self.schema):
            parts = list(cut(chunk))
            shards = array_of([number for number, _ in parts], pa.int32())
            blobs = binaries([part.serialize() for _, part in parts])
            yield pa.RecordBatch.from_arrays([shards, blobs], schema=_PACKED)


def unpacked(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[Part]:
    """The reduce side: what `Gather` packed."""
    for batch in batches:
        shards, blobs = batch.columns
        for number, blob in zip(shards.to_pylist(), blobs, strict=True):
            yield number, pa.ipc.read_record_batch(blob.as_buffer(), schema)


def sorted_by_shard(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Sequence[Part]:
    """All stamps, where one task has those of all shards."""
    parts = [part for chunk in chunks(batches, schema) for part in cut(chunk)]
    return sorted(parts, key=itemgetter(0))  # stable: of a shard they keep their order


def chunks(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Within both bounds, unless a batch by itself has more bytes."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, batch.num_rows, CHUNK_ROWS_MAX):
            piece = batch.slice(start, CHUNK_ROWS_MAX)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            if held and (rows > CHUNK_ROWS_MAX or size > CHUNK_BYTES_MAX):
                yield _whole(held, schema)
                held, rows, size = [], piece.num_rows, piece.nbytes
            held.append(piece)
    if held:
        yield _whole(held, schema)


def cut(stamps: pa.RecordBatch) -> Iterator[Part]:
    """Each shard that they have, with its part, in their order."""
    shards = shards_of(stamps.column(stamps.schema.get_field_index("producer")))
    order = np.argsort(shards, kind="stable")  # of 8 bits: numpy counts them
    ordered = stamps.take(array_of(order, pa.int64()))
    start = 0
    for number, count in enumerate(np.bincount(shards, minlength=SHARDS).tolist()):
        if count:
            yield number, ordered.slice(start, count)
            start += count


def shards_of(producers: pa.Array) -> npt.NDArray[np.uint8]:
    """Of each id. One that is not there belongs nowhere, and is told by whoever is there."""
    if producers.null_count:
        producers = producers.fill_null(scalar_of(b"", pa.binary()))  # whose crc is 0
    offsets = np.frombuffer(producers.buffers()[1], np.int32)
    offsets = offsets[producers.offset : producers.offset + len(producers) + 1]
    data = np.frombuffer(producers.buffers()[2] or b"", np.uint8)
    crcs = crc32(data, offsets[:-1], np.diff(offsets))
    found: npt.NDArray[np.uint8] = (crcs % np.uint32(SHARDS)).astype(np.uint8)
    return found


def _whole(held: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """In one piece. Cast, since Spark may be told to have offsets of 64 bits."""
    columns = [
        pa.concat_arrays([each.column(at).cast(field.type) for each in held])
        for at, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
