"""Dedup in a Python task that reads the source's records itself and then encodes them.

The task reads each record's stamp (producer id, epoch and sequence number) from its headers, and
passes on the accepted records. No record enters the JVM.

Every Python worker imports this module, so it must not load pyspark.sql or the configuration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, values_of
from eos.dedup.header_stamps import stamps
from eos.dedup.optimistic_pass import OptimisticPass
from eos.dedup.stage import DedupStage
from eos.dedup.verdict_lookup import VerdictLookup
from eos.encode.record_errors import at_of

# A task holds rows of at most about this size until their verdicts are known. Rows that it is
# encoding are not included.
HELD_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class HeaderValidation:
    """Dedup of records that a Python task read from the source.

    `names` are the headers with the producer id, epoch and sequence number. Records with a verdict
    code in `not_accepted` are left out: they are dropped or become dead letters.
    """

    stage: DedupStage | VerdictLookup | OptimisticPass
    not_accepted: Sequence[int]
    names: Sequence[str]

    def accepted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each batch without the records that are not accepted.

        A batch may be held until enough records were read to validate them together."""
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
        """Return the columns that `self.stage.codes` needs to return verdicts."""
        topic, partition, offset = map(batch.column, ("topic", "partition", "offset"))
        if isinstance(self.stage, VerdictLookup):
            return topic, partition, offset
        stamp = stamps(batch.column("headers"), self.names)
        if isinstance(self.stage, OptimisticPass):
            topics = () if self.stage.topic else (topic,)
            return at_of(partition, offset), *stamp, *topics
        return topic, partition, offset, *stamp
