"""Summary of the records that a task validated.

The report has counts by verdict, the producers of unusual records, and gaps. The driver adds the
reports up for the ledger record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, longs, values_of
from eos.dedup.policy import NAMES, UNSTAMPED
from eos.dedup.record_errors import producer_text
from eos.dedup.verdict_rows import VerdictRows

SPANS_LISTED_MAX = 1000  # entries per report; each is a partition, a producer and a verdict
GAPS_LISTED_MAX = 20  # producers per report whose first gap is listed
_GAP = NAMES.index("gap")
# Columns of the file with the verdicts of single records, for tasks that read the records again.
VERDICTS_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("code", pa.int8())]
)


class _Of(NamedTuple):
    topic: str
    partition: int
    producer: bytes
    verdict: str


@dataclass(slots=True)
class Account:
    """Verdict counts of one partition or shard.

    `notes` lists each record whose verdict code is in `noted`."""

    noted: Collection[int] = ()
    records: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    notes: list[pa.Table] = field(default_factory=list)
    # Number of records, and the offsets of the first and the last.
    _spans: dict[_Of, tuple[int, int, int]] = field(default_factory=dict)
    _gaps: dict[bytes, list[Any]] = field(default_factory=dict)

    def add(self, rows: VerdictRows, expected: Callable[[int], int] | None = None) -> None:
        """Count these records. `expected` returns, for the row of a gap, the expected number."""
        self.records += len(rows.codes)
        counts = np.bincount(rows.codes, minlength=len(NAMES))
        self.verdicts.update({NAMES[at]: int(n) for at, n in enumerate(counts) if n})
        noted = longs(np.flatnonzero(np.isin(rows.codes, tuple(self.noted))))
        if len(noted):
            every = (rows.topic, rows.partition, rows.offset, array_of(rows.codes, pa.int8()))
            self.notes.append(pa.table([each.take(noted) for each in every], VERDICTS_SCHEMA))
        notable = longs(np.flatnonzero((rows.codes != 0) & (rows.codes != UNSTAMPED)))
        if len(notable):
            self._add_spans(rows, notable)
        if expected is not None and self.verdicts["gap"]:
            self._add_gaps(rows, expected)

    def _add_gaps(self, rows: VerdictRows, expected: Callable[[int], int]) -> None:
        """Add the first gap of each producer to the report, in the order of record positions.

        With a fixed order, a task that Spark runs again writes the same report."""
        at = np.flatnonzero(rows.codes == _GAP)
        rows_of_gaps = longs(at)
        places = {
            name: getattr(rows, name).take(rows_of_gaps)
            for name in ("topic", "partition", "offset")
        }
        order = pc.sort_indices(pa.table(places), [(name, "ascending") for name in places])
        # Only the first gap of a producer is examined: if it is not accepted, all further records
        # of the producer are gaps.
        producers = rows.producer.take(rows_of_gaps).take(order).dictionary_encode()
        _, firsts = np.unique(values_of(producers.indices), return_index=True)
        for place in np.sort(firsts).tolist():
            row = int(at[order[place].as_py()])
            producer = rows.producer[row].as_py()
            if len(self._gaps) >= GAPS_LISTED_MAX:
                return
            if producer not in self._gaps:
                found = [rows.topic, rows.partition, rows.offset, rows.epoch, rows.sequence]
                topic, partition, offset, epoch, got = (each[row].as_py() for each in found)
                expected_number = expected(row)
                self._gaps[producer] = [
                    topic,
                    partition,
                    producer_text(producer),
                    epoch,
                    expected_number,
                    got,
                    offset,
                ]

    @property
    def gaps(self) -> list[list[Any]]:
        """Return topic, partition, producer, epoch, expected number, actual number and offset of
        each gap."""
        return sorted(self._gaps.values())

    def _add_spans(self, rows: VerdictRows, notable: Any) -> None:
        keys = {
            "topic": rows.topic,
            "partition": rows.partition,
            "producer": rows.producer,
            "code": array_of(rows.codes, pa.int8()),
        }
        found = pa.table({name: each.take(notable) for name, each in keys.items()})
        found = found.append_column("offset", rows.offset.take(notable))
        aggregates = [("offset", "count"), ("offset", "min"), ("offset", "max")]
        sums = found.group_by(list(keys), use_threads=False).aggregate(aggregates)
        # Sort by the first record before the limit applies. So a repeated task lists the same
        # entries, even if it gets the partition's records in other chunks.
        order = [(name, "ascending") for name in ("topic", "partition", "offset_min")]
        for row in sums.sort_by(order).to_pylist():
            of = _Of(row["topic"], row["partition"], row["producer"], NAMES[row["code"]])
            count, first, last = row["offset_count"], row["offset_min"], row["offset_max"]
            if of in self._spans:
                before = self._spans[of]
                self._spans[of] = before[0] + count, min(before[1], first), max(before[2], last)
            elif len(self._spans) < SPANS_LISTED_MAX:
                self._spans[of] = count, first, last

    @property
    def spans(self) -> list[list[Any]]:
        return sorted(
            [of.topic, of.partition, producer_text(of.producer), of.verdict, *span]
            for of, span in self._spans.items()
        )
