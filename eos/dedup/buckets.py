"""Where producers' states lie: in buckets, by a hash of the producer's id, a Parquet file each.

A partition of the source has buckets of its own, since a producer's sequences there are its own;
where they are spread over partitions, a shard of the producers has. So what a micro-batch costs
follows the buckets that it touches: a file is read, and written anew if a state in it moved on. A
partition or shard with many producers gets twice as many buckets, again and again.
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

from eos.errors import PromiseBrokenError
from eos.kafka.api import TopicPartition
from eos.kafka.records.murmur2 import murmur2

FIRST_BUCKETS = 4
# States in a bucket on average, at which a partition gets more of them.
BUCKET_ROWS_MAX = 8192
GROWTH = 2
BUCKETS_MAX = 4**8

# `first` and `last`: of the ranges that were accepted the newest, oldest first. Those that `run`
# tells, so many numbers up to the last one, need not be there but for that one.
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
# Where a producer's numbers are spread over partitions: a row for each of its epochs. `partitions`
# are those in which no newer epoch was seen.
SPREAD_STATES = pa.schema(
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
# Such producers lie in as many shards, by crc32 of the id, whatever partitions they write to. A
# shard is judged by one task. Not to be changed: files were made by it.
SHARDS = 16
_SHARDED = "*"  # no topic has this name


class Home(NamedTuple):
    """One bucket of one partition of the source, or of one shard, which has `buckets` of them."""

    topic: str
    partition: int
    buckets: int
    bucket: int


class BucketFile(NamedTuple):
    """`path` is relative to the table's folder, with `/`."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BucketManifest:
    """The states of one partition, as files by bucket. A bucket without states has none."""

    buckets: int = FIRST_BUCKETS
    files: Mapping[int, BucketFile] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files.values())


def bucket_of(producers: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """Of each id: the same on every machine, and for ever, since files were made by it."""
    if not len(producers):
        return np.zeros(0, np.int64)
    producers = producers.cast(pa.binary())  # Spark may be told to have offsets of 64 bits
    offsets = np.frombuffer(producers.buffers()[1], np.int32)
    offsets = offsets[producers.offset : producers.offset + len(producers) + 1]
    data = np.frombuffer(producers.buffers()[2] or b"", np.uint8)
    hashes = murmur2(data, offsets[:-1], np.diff(offsets))
    return (hashes.astype(np.int64) % buckets).astype(np.int64)


def distinct(buckets: npt.NDArray[np.int64]) -> set[int]:
    return set(np.flatnonzero(np.bincount(buckets)).tolist())


def grown(buckets: int, rows: int) -> int:
    """As many buckets as so many states want: never fewer than there are."""
    while rows > buckets * BUCKET_ROWS_MAX and buckets < BUCKETS_MAX:
        buckets *= GROWTH
    return buckets


def shard(number: int) -> TopicPartition:
    """A shard as the home of its states."""
    return TopicPartition(_SHARDED, number)


def folder_of(home: TopicPartition) -> str:
    """Relative to the table's folder."""
    return f"shard-{home.partition}" if home.topic == _SHARDED else f"{home.topic}-{home.partition}"


def read_states(place: str, file: BucketFile, schema: pa.Schema = STATES) -> pa.Table:
    """Of one bucket, the columns of `schema`."""
    try:
        # In one piece: most of it is wanted, and each look into a small file costs as much.
        whole = pa.BufferReader(Path(place).read_bytes())
        # A column to each thread costs more than it brings: tasks run beside one another anyway.
        found = pq.ParquetFile(whole).read(columns=schema.names, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(place, str(error).strip().splitlines()[0][:300]) from error
    if found.num_rows != file.rows:
        raise _damaged(place, f"it has {found.num_rows} rows, and had {file.rows}")
    return found if found.schema.equals(schema) else found.cast(schema)


def write_states(place: str, states: pa.Table) -> int:
    """How many bytes it became."""
    made = pa.BufferOutputStream()
    # Half of zstd's time, for files of up to two thirds more; and pages of version 2 a fifth less.
    pq.write_table(
        states,
        made,
        compression="lz4",
        use_dictionary=False,
        write_statistics=False,
        data_page_version="2.0",
    )
    return Path(place).write_bytes(made.getvalue())


def _damaged(place: str, why: str) -> PromiseBrokenError:
    return PromiseBrokenError(
        f"the states of producers in {place} can't be read: {why}",
        hint="was it deleted or cut off, or does this machine not have the state root? Without "
        "it duplicates of before can't be told: docs/dedup.md says how to go on without",
        case="producers_lost",
        path=place,
    )
