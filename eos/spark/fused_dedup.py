"""Dedup and encoding behind it, as one pass of Python.

In Spark's plan they are two: rows wait inside the JVM for what Python says of their stamps, and
those that stay go out to Python once more. Where nothing stands between (`dedup_rows.in_one_pass`)
a task judges the rows that it has got, and encodes those that stay.

Every Python worker imports `DedupMapper`, so nothing here loads pyspark.sql or the configuration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, values_of
from eos.dedup.header_stamps import stamps
from eos.dedup.optimistic_pass import OptimisticPass
from eos.dedup.record_position import unpacked
from eos.dedup.stage import DedupStage
from eos.dedup.verdict_lookup import VerdictLookup
from eos.spark.fused_step import Encode, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAMPS = ("__producer", "__epoch", "__sequence")
# What a task holds of rows that wait for their verdict, beside what it holds to encode.
HELD_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class HeaderValidation:
    """Of rows as the sinks read them. `names`: of the headers that stamps are in; none: they are
    columns."""

    stage: DedupStage | VerdictLookup | OptimisticPass
    left_out: Sequence[int]  # codes
    names: Sequence[str]

    def kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that stay. They may have to wait until enough have come to be judged."""
        held: deque[pa.RecordBatch] = deque()

        def asked() -> Iterator[tuple[Any, ...]]:
            for batch in batches:
                held.append(batch)
                yield self._asked(batch)

        def is_full() -> bool:
            held_bytes: int = sum(each.nbytes for each in held)
            return held_bytes >= HELD_BYTES_MAX

        for codes in self.stage.codes(asked(), is_full):
            batch = held.popleft()
            stays = ~np.isin(values_of(codes), self.left_out)
            yield batch if stays.all() else batch.filter(array_of(stays, pa.bool_()))

    def _asked(self, batch: pa.RecordBatch) -> tuple[Any, ...]:
        at = batch.column("__at")
        topics = [] if self.stage.topic else [batch.column("__topic")]
        if isinstance(self.stage, VerdictLookup):
            return unpacked(at, topics, self.stage.topic)
        if self.names:
            stamp = stamps(batch.column("headers"), self.names)
        else:
            producer, epoch, sequence = map(batch.column, STAMPS)
            stamp = producer, epoch, sequence
        if isinstance(self.stage, OptimisticPass):
            return at, *stamp, *topics
        return *unpacked(at, topics, self.stage.topic), *stamp


@dataclass(frozen=True, slots=True)
class FusedDedup:
    """`frame`: the source's rows as the sinks read them, and what of stamps they do not have; not
    judged yet."""

    frame: DataFrame
    judging: HeaderValidation

    def coalesce(self, tasks: int) -> FusedDedup:
        return replace(self, frame=self.frame.coalesce(tasks))

    def mapped(self, encode: Encode, schema: str) -> DataFrame:
        return self.frame.mapInArrow(DedupMapper(self.judging, encode), parsed(schema))


@dataclass(frozen=True, slots=True)
class DedupMapper:
    """Both as one function of a task."""

    judging: HeaderValidation
    encode: Encode

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.encode(self.judging.kept(batches))
