"""How do dedup and encoding run in one pass of Python?

In Spark's plan they are two passes: Python validates the rows' stamps while the rows wait in the
JVM, and the accepted rows then go to Python again. If there is no step or SQL between dedup and
encoding (`dedup_columns.in_one_pass`), one task validates its rows and encodes the accepted ones.

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
from eos.encode.record_errors import at_of
from eos.spark.fused_step import Encode, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAMPS = ("__producer", "__epoch", "__sequence")
# The most rows, in bytes, that a task holds until their verdicts are known. Rows that it is
# encoding are not included.
HELD_BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class HeaderValidation:
    """Dedup of rows that have the sinks' columns already, or of the source's own rows.

    `names` are the headers with the stamps. If it is empty, the stamps are in columns. Rows with a
    code in `not_accepted` are dropped or become dead letters.
    """

    stage: DedupStage | VerdictLookup | OptimisticPass
    not_accepted: Sequence[int]
    names: Sequence[str]

    def accepted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the accepted rows. A batch may be held until enough rows to validate were read."""
        held: deque[pa.RecordBatch] = deque()

        def waiting() -> Iterator[tuple[Any, ...]]:
            for batch in batches:
                held.append(batch)
                yield self._columns(batch)

        def is_full() -> bool:
            held_bytes: int = sum(each.nbytes for each in held)
            return held_bytes >= HELD_BYTES_MAX

        for codes in self.stage.codes(waiting(), is_full):
            batch = held.popleft()
            is_accepted = ~np.isin(values_of(codes), self.not_accepted)
            yield batch if is_accepted.all() else batch.filter(array_of(is_accepted, pa.bool_()))

    def _columns(self, batch: pa.RecordBatch) -> tuple[Any, ...]:
        if "__at" in batch.schema.names:
            at, of_topic = batch.column("__at"), "__topic"
        else:
            at, of_topic = at_of(batch.column("partition"), batch.column("offset")), "topic"
        topics = [] if self.stage.topic else [batch.column(of_topic)]
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
    """Rows to validate and encode in one pass.

    `frame` has the source's rows with the sinks' columns. If the headers don't include the stamps,
    it has columns for them.
    """

    frame: DataFrame
    validation: HeaderValidation

    def coalesce(self, tasks: int) -> FusedDedup:
        return replace(self, frame=self.frame.coalesce(tasks))

    def mapped(self, encode: Encode, schema: str) -> DataFrame:
        return self.frame.mapInArrow(DedupMapper(self.validation, encode), parsed(schema))


@dataclass(frozen=True, slots=True)
class DedupMapper:
    """The task function that validates rows and encodes the accepted ones."""

    validation: HeaderValidation
    encode: Encode

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.encode(self.validation.accepted(batches))
