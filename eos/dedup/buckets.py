"""Assignment of producers' dedup states to Parquet files.

States are divided into buckets by a hash of the producer's id, and each bucket is one file. Each
source partition has its own buckets, because a producer has one sequence per partition. With
`scope: producer`, each shard (a sixteenth of the producers, by hash) has its own buckets instead.

A micro-batch reads only the buckets of its producers, and rewrites a file only if a state in it
changed. If a partition or shard has too many states, its number of buckets doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from eos.errors import PromiseBrokenError, UnavailableError
from eos.folder import Folder, as_folder
from eos.kafka.api import TopicPartition
from eos.kafka.records.murmur2 import murmur2

FIRST_BUCKETS = 4
# If buckets have more states than this on average, their number doubles.
BUCKET_ROWS_MAX = 8192
GROWTH = 2
BUCKETS_MAX = 4**8

# `first` and `last` list the newest ranges of accepted sequence numbers, oldest first. `run` is the
# number of consecutive accepted numbers up to the last one. Ranges within this run may be missing,
# except the last range.
STATES = pa.schema(
    [
        ("producer", pa.binary()),
        ("epoch", pa.int64()),
        ("first", pa.list_(pa.int64())),
        ("last", pa.list_(pa.int64())),
        ("run", pa.int64()),
        ("at_ms", pa.int64()),
    ]
)
# States of `scope: producer`: a row per producer and epoch. `partitions` lists the partitions in
# which this epoch is the newest one of the producer.
SCOPE_STATES = pa.schema(
    [
        ("producer", pa.binary()),
        ("epoch", pa.int64()),
        ("begin", pa.int64()),
        ("base", pa.int64()),
        ("first", pa.list_(pa.int64())),
        ("last", pa.list_(pa.int64())),
        ("forgotten", pa.int64()),
        ("partitions", pa.list_(pa.string())),
        ("at_ms", pa.int64()),
    ]
)
# With `scope: producer`, crc32 of the producer id assigns a producer to one of these shards, the
# same in all partitions. All records of a shard are validated by one task. Existing state files
# rely on the number of shards, so never change it.
SHARDS = 16
_SHARDED = "*"  # not a valid topic name


class BucketKey(NamedTuple):
    """Identity of a bucket: number `bucket` of the `buckets` buckets of a partition or shard."""

    topic: str
    partition: int
    buckets: int
    bucket: int


class BucketFile(NamedTuple):
    """State file of one bucket. `path` is relative to the table's folder, with `/`."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BucketManifest:
    """State files of one partition or shard, by bucket. A bucket without states has no file."""

    buckets: int = FIRST_BUCKETS
    files: Mapping[int, BucketFile] = field(default_factory=dict)


def bucket_of(producers: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each producer id. Existing files rely on the hash: never change it."""
    if not len(producers):
        return np.zeros(0, np.int64)
    producers = producers.cast(pa.binary())  # Spark may send 64-bit Arrow offsets
    offsets = np.frombuffer(producers.buffers()[1], np.int32)
    offsets = offsets[producers.offset : producers.offset + len(producers) + 1]
    data = np.frombuffer(producers.buffers()[2] or b"", np.uint8)
    hashes = murmur2(data, offsets[:-1], np.diff(offsets))
    return (hashes.astype(np.int64) % buckets).astype(np.int64)


def distinct(buckets: npt.NDArray[np.int64]) -> set[int]:
    return set(np.flatnonzero(np.bincount(buckets)).tolist())


def grown_buckets(buckets: int, rows: int) -> int:
    """Return `buckets`, doubled until they are enough for `rows` states, up to BUCKETS_MAX."""
    while rows > buckets * BUCKET_ROWS_MAX and buckets < BUCKETS_MAX:
        buckets *= GROWTH
    return buckets


def shard(number: int) -> TopicPartition:
    """Return a pseudo partition for a shard of producers: buckets are stored by partition."""
    return TopicPartition(_SHARDED, number)


def folder_of(home: TopicPartition) -> str:
    """Return the folder for new files of a partition or shard, relative to the table's folder.

    VACUUM skips folders whose names begin with `_` or `.`, and a topic's name may."""
    if home.topic == _SHARDED:
        return f"shard-{home.partition}"
    return f"topic-{home.topic}-{home.partition}"


def read_states(folder: Folder | Path, file: BucketFile, schema: pa.Schema = STATES) -> pa.Table:
    """Return the states of one bucket. Raise PromiseBrokenError if the file is not there or is
    damaged, and UnavailableError if its store does not respond."""
    place = f"{folder}/{file.path}"
    try:
        # Read the whole file at once: most of it is needed, and a seek costs as much as the read.
        content = as_folder(folder).read(file.path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise UnavailableError(
                "producers_unavailable",
                f"the states of producers in {place} can't be read: {error}",
                hint="is the store available, and may this user read there? Then start again",
                path=place,
            ) from error
        raise _damaged(place, str(error).strip().splitlines()[0][:300]) from error
    try:
        buffer = pa.BufferReader(content)
        # One thread is faster for small files, and Spark runs several tasks in parallel anyway.
        found = pq.ParquetFile(buffer).read(columns=schema.names, use_threads=False)
    except (OSError, pa.ArrowException) as error:  # pyarrow raises OSError for a truncated file
        raise _damaged(place, str(error).strip().splitlines()[0][:300]) from error
    if found.num_rows != file.rows:
        raise _damaged(place, f"it has {found.num_rows} rows instead of {file.rows}")
    return found if found.schema.equals(schema) else found.cast(schema)


def write_states(folder: Folder | Path, path: str, states: pa.Table) -> int:
    """Write the states of one bucket into a file of the table's folder, and return its size in
    bytes."""
    buffer = pa.BufferOutputStream()
    # lz4 takes half of zstd's time, and its files are up to two thirds larger. Data pages of
    # version 2 save another fifth of the time.
    pq.write_table(
        states,
        buffer,
        compression="lz4",
        use_dictionary=False,
        write_statistics=False,
        data_page_version="2.0",
    )
    content = buffer.getvalue()
    as_folder(folder).write(path, content)
    return int(content.size)


def _damaged(place: str, reason: str) -> PromiseBrokenError:
    return PromiseBrokenError(
        "producers_lost",
        f"the states of producers in {place} can't be read: {reason}",
        hint="the file was deleted or truncated, or this machine lacks the state root. Restore "
        "the file, or run `eos recover PIPELINE --forget-producers`: duplicates of records sent "
        "earlier are not recognized then",
        path=place,
    )
