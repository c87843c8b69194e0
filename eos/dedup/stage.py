"""The dedup stage: what runs inside a Spark task, right after the source and before any filter.

It sees the coordinates and the stamp of each record, answers with a code for each, and at the end
of a partition leaves two things behind: the partition's new states, as Parquet files in the table's
folder that no Delta commit names yet, and one *report*, a JSON file in the attempt's folder, which
names them. Both come from the state before, the rows and the attempt's clock alone: a task that
Spark runs again leaves the same under other names, and either may be taken.

Imported by every Python worker, so nothing here loads pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, longs
from eos.dedup.buckets import BucketManifest
from eos.dedup.partition_validator import PartitionValidator
from eos.dedup.policy import Policy
from eos.dedup.record_position import by_partition, unpacked
from eos.dedup.spool import StateSpool
from eos.errors import EosError
from eos.kafka.api import TopicPartition
from eos.seal import Seal, of_this_process

# Rows that are decided together. If they wait for it, as many are kept aside: by Spark, or by this
# process where encoding is in the same pass (`spark/fused_dedup.py`), which has another bound, too.
CHUNK_ROWS = 1 << 17
CHUNK_BYTES = 32 << 20  # of ids, which may be long

# topic, partition, offset, producer, epoch, sequence
Columns = tuple[Any, Any, Any, Any, Any, Any]


def _never() -> bool:
    return False


def _own(columns: Columns) -> Columns:
    """Copies: a column as it came keeps all of its batch in memory, values and all."""
    every = longs(np.arange(len(columns[0])))
    topic, partition, offset, *stamp = (each.take(every) for each in columns)
    return topic, partition, offset, *stamp


@dataclass(frozen=True, slots=True)
class DedupStage:
    """One attempt. `folder` is the table's, `work` the attempt's own; `known` are the states that
    it begins with. `topic`: the only one that rows are of; empty: they say it.

    `trusts`: rows pass as if each were next, so that none waits; they are judged as if they had
    waited, and whoever reads the reports ends the attempt if one of them has to go."""

    pipeline: str
    folder: str
    work: str
    policy: Policy
    known: Mapping[TopicPartition, BucketManifest]
    now_ms: int
    topic: str = ""
    trusts: bool = False
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[Sequence[Any]]) -> Iterator[Any]:
        """As Spark calls an Arrow function over an iterator: an array of codes for each batch."""
        rows = (
            (*unpacked(at, topics, self.topic), producer, epoch, sequence)
            for at, producer, epoch, sequence, *topics in batches
        )
        try:
            yield from self.codes(rows)
        except EosError as error:
            raise self.seal.crossing(error) from error

    def codes(
        self, batches: Iterator[Columns], is_full: Callable[[], bool] = _never
    ) -> Iterator[Any]:
        """`is_full`: asked whether no more rows can be kept aside."""
        judges: dict[TopicPartition, PartitionValidator] = {}
        waiting: list[Columns] = []
        rows = size = 0
        for batch in batches:
            waiting.append(_own(batch) if self.trusts else batch)
            rows, size = rows + len(batch[3]), size + batch[3].nbytes
            if self.trusts:
                yield array_of(np.zeros(len(batch[0]), np.int8), pa.int8())
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES or is_full():
                yield from self._told(waiting, judges)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield from self._told(waiting, judges)
        leaving = StateSpool(self.pipeline, self.folder, self.work)
        for judge in judges.values():
            leaving.leave(judge)

    def _told(
        self, batches: list[Columns], judges: dict[TopicPartition, PartitionValidator]
    ) -> Sequence[Any]:
        """What of their codes was not told yet."""
        found = list(self._judged(batches, judges))
        return () if self.trusts else found

    def _judged(
        self, batches: list[Columns], judges: dict[TopicPartition, PartitionValidator]
    ) -> Iterator[Any]:
        sizes = [len(each[0]) for each in batches]
        columns = [pa.concat_arrays(list(each)) for each in zip(*batches, strict=True)]
        codes = np.zeros(sum(sizes), np.int8)
        for tp, rows in by_partition(columns[0], columns[1]):
            if tp not in judges:
                kept = self.known.get(tp, BucketManifest())
                place = Path(self.folder)
                judges[tp] = PartitionValidator(
                    self.pipeline, tp, self.policy, kept, place, self.now_ms
                )
            part = columns[2:]
            if not isinstance(rows, slice):
                part = [each.take(longs(rows)) for each in part]
            found = judges[tp].judge(*part)
            codes[rows] = found
        start = 0
        for size in sizes:
            yield array_of(codes[start : start + size], pa.int8())
            start += size
