"""How does Spark shuffle stamps from the tasks that read them to the tasks that validate them?

A stamp is a record's producer id, epoch and sequence. The reading task splits the stamps by shard
(a hash of the producer id). If several tasks validate, it packs each shard's part of a chunk into
one row. The cost of a shuffle depends on the number of rows, so few large rows are cheaper.

Every Python worker imports this module, so it must not load pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.arrow import array_of, binaries
from eos.dedup.buckets import SHARDS
from eos.dedup.crc32 import crc32_of

# Columns as the JVM sends them: `at` is partition and offset in one number (`record_position`). The
# topic column exists only if the source has several topics.
STAMPS = pa.schema(
    [
        ("at", pa.int64()),
        ("producer", pa.binary()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
        ("topic", pa.string()),
    ]
)
# Spark schema of the rows of `Gather`. `blob` is a shard's part of a chunk, as an Arrow message
# without its schema, since the reader has the schema.
PACKED = "shard int, blob binary"
Part = tuple[int, pa.RecordBatch]  # number of a shard, and stamps of it
_PACKED = pa.schema([("shard", pa.int32()), ("blob", pa.binary())])
# Limits of the stamps that are packed together. Spark passes at most 50,000 rows at a time, too.
# Larger chunks were slower. A task holds several copies of a chunk (20 MB with short ids).
CHUNK_ROWS_MAX = 50_000
CHUNK_BYTES_MAX = 4 << 20


def schema(*, is_of_one_topic: bool) -> pa.Schema:
    return STAMPS.remove(STAMPS.get_field_index("topic")) if is_of_one_topic else STAMPS


@dataclass(frozen=True, slots=True)
class Gather:
    """Map side of the shuffle: packs stamps into one row per shard and chunk.

    Spark calls it as an Arrow function. Stamps of one shard keep their order."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks(batches, self.schema):
            parts = list(split_by_shard(chunk))
            shards = array_of([number for number, _ in parts], pa.int32())
            blobs = binaries([part.serialize() for _, part in parts])
            yield pa.RecordBatch.from_arrays([shards, blobs], schema=_PACKED)


def unpacked(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[Part]:
    """Yield the stamps that `Gather` packed (reduce side of the shuffle)."""
    for batch in batches:
        shards, blobs = batch.columns
        for number, blob in zip(shards.to_pylist(), blobs, strict=True):
            yield number, pa.ipc.read_record_batch(blob.as_buffer(), schema)


def sorted_by_shard(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Sequence[Part]:
    """Return all stamps by shard, for a single task that validates all shards."""
    parts = [part for chunk in chunks(batches, schema) for part in split_by_shard(chunk)]
    return sorted(parts, key=itemgetter(0))  # stable: stamps of a shard keep their order


def chunks(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Regroup batches into chunks within both bounds. A single batch may exceed the byte bound."""
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


def split_by_shard(stamps: pa.RecordBatch) -> Iterator[Part]:
    """Yield the number of each shard that occurs and its stamps, in the order of shards."""
    shards = shards_of(stamps.column(stamps.schema.get_field_index("producer")))
    order = np.argsort(shards, kind="stable")  # 8-bit values: numpy uses a radix sort
    ordered = stamps.take(array_of(order, pa.int64()))
    start = 0
    for number, count in enumerate(np.bincount(shards, minlength=SHARDS).tolist()):
        if count:
            yield number, ordered.slice(start, count)
            start += count


def shards_of(producers: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the shard of each id. Null ids hash to shard 0, which reports them as unstamped."""
    crcs = crc32_of(producers)
    found: npt.NDArray[np.uint8] = (crcs % np.uint32(SHARDS)).astype(np.uint8)
    return found


def _whole(held: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the batches as one, cast to `schema`: Spark may use 64-bit Arrow offsets."""
    columns = [
        pa.concat_arrays([each.column(at).cast(field.type) for each in held])
        for at, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
