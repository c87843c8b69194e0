"""How does a Spark task deduplicate the source partitions that it reads (`scope: partition`)?

The stage runs right after the source and before any filter. It reads the position and the stamp of
each record and returns one verdict code per record. A stamp is the producer id, epoch and
sequence number that the upstream application gave the record. A task may read several partitions,
one after the other. At the end of each it writes:

- the partition's new states, as Parquet files in the table's folder; no Delta commit names them yet
- one *report*, a JSON file in the attempt's folder, which names these files

Files and report depend only on the previous states, the rows and the attempt's start time. A task
that Spark runs again writes the same content under other names, and the driver may use either.

Every Python worker imports this module, so it must not load pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, longs
from eos.dedup.buckets import BucketManifest
from eos.dedup.partition_validator import PartitionValidator
from eos.dedup.policy import Policy
from eos.dedup.record_position import by_partition, unpacked
from eos.dedup.spool import StateSpool
from eos.folder import Folder
from eos.kafka.api import TopicPartition
from eos.seal import Seal, of_this_process

# Rows that are validated together. So up to this many rows wait for their verdicts: in Spark, or in
# this process if it reads Kafka itself (`spark/header_validation.py`, with a lower limit).
CHUNK_ROWS = 1 << 17
CHUNK_BYTES = 32 << 20  # limit of the size of the producer ids, which may be long

# Columns of a batch: topic, partition, offset, producer, epoch, sequence
Columns = tuple[Any, Any, Any, Any, Any, Any]


def _never() -> bool:
    return False


def _ended(partitions: Iterable[TopicPartition], batches: list[Columns]) -> list[TopicPartition]:
    """Return the partitions that have no more rows: all except the partition of the last row."""
    for topic, partition, *_ in reversed(batches):
        if len(topic):
            last = TopicPartition(topic[-1].as_py(), partition[-1].as_py())
            return [each for each in partitions if each != last]
    return []


@dataclass(frozen=True, slots=True)
class DedupStage:
    """Partition-wise dedup of one attempt, as a function that Spark calls for each task.

    `folder` is the folder of the `producers` table, `work` the folder of the attempt, and `known`
    the states at its beginning. `topic` is the only source topic; if it is empty, each row names
    its topic."""

    pipeline: str
    folder: Folder
    work: Folder
    policy: Policy
    known: Mapping[TopicPartition, BucketManifest]
    now_ms: int
    topic: str = ""
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(
        self, batches: Iterator[Sequence[Any]], is_full: Callable[[], bool] = _never
    ) -> Iterator[Any]:
        """Yield one array of verdict codes per batch (Spark's contract for iterator functions)."""
        rows = (
            (*unpacked(at, topics, self.topic), producer, epoch, sequence)
            for at, producer, epoch, sequence, *topics in batches
        )
        with self.seal.crossing_errors():
            yield from self.codes(rows, is_full)

    def codes(
        self, batches: Iterator[Columns], is_full: Callable[[], bool] = _never
    ) -> Iterator[Any]:
        """Yield the codes of each batch. Write a partition's states and report after its last row.

        `is_full` returns whether the caller can buffer no more rows. Then the stage decides the
        buffered rows at once."""
        spool = StateSpool(self.pipeline, self.folder, self.work)
        validators: dict[TopicPartition, PartitionValidator] = {}
        waiting: list[Columns] = []
        rows = size = 0
        for batch in batches:
            waiting.append(batch)
            rows, size = rows + len(batch[3]), size + batch[3].nbytes
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES or is_full():
                yield from self._validated(waiting, validators)
                # Release states as soon as their partition ends: those of all partitions that a
                # task reads may not fit into memory.
                for tp in _ended(validators, waiting):
                    spool.write(validators.pop(tp))
                waiting, rows, size = [], 0, 0
        if waiting:
            yield from self._validated(waiting, validators)
        for validator in validators.values():
            spool.write(validator)

    def _validated(
        self, batches: list[Columns], validators: dict[TopicPartition, PartitionValidator]
    ) -> Iterator[Any]:
        sizes = [len(each[0]) for each in batches]
        columns = [pa.concat_arrays(list(each)) for each in zip(*batches, strict=True)]
        codes = np.zeros(sum(sizes), np.int8)
        for tp, rows in by_partition(columns[0], columns[1]):
            if tp not in validators:
                buckets = self.known.get(tp, BucketManifest())
                validators[tp] = PartitionValidator(
                    self.pipeline, tp, self.policy, buckets, self.folder, self.now_ms
                )
            part = columns[2:]
            if not isinstance(rows, slice):
                part = [each.take(longs(rows)) for each in part]
            found = validators[tp].validate(*part)
            codes[rows] = found
        start = 0
        for size in sizes:
            yield array_of(codes[start : start + size], pa.int8())
            start += size
