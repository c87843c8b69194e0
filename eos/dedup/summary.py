"""What is told of records that were judged: counts, and of which producers something is to tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.arrow import array_of, longs, values_of
from eos.dedup.policy import NAMES, UNSTAMPED
from eos.dedup.record_errors import told
from eos.dedup.verdict_rows import VerdictRows

TOLD_MAX = 1000  # producers with something to tell of, of one report
GAPS_TOLD_MAX = 20  # producers whose first gap is told with its numbers, likewise
_GAP = NAMES.index("gap")
# Where a record lies and what was decided of it, for whoever reads it once more.
VERDICTS_SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("code", pa.int8())]
)


class _Of(NamedTuple):
    topic: str
    partition: int
    producer: bytes
    verdict: str


@dataclass(frozen=True, slots=True)
class _Span:
    """How many records, and where the first and the last lie."""

    count: int
    offset_first: int
    offset_last: int


@dataclass(slots=True)
class Account:
    """`noted`: codes of which each record is remembered, and not only counted."""

    noted: Collection[int] = ()
    records: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    notes: list[pa.Table] = field(default_factory=list)
    _told: dict[_Of, _Span] = field(default_factory=dict)
    _gaps: dict[bytes, list[Any]] = field(default_factory=dict)

    def add(self, rows: VerdictRows, expected: Callable[[int], int] | None = None) -> None:
        """`expected`: which number was, where a row is above it."""
        self.records += len(rows.codes)
        counts = np.bincount(rows.codes, minlength=len(NAMES))
        self.verdicts.update({NAMES[at]: int(n) for at, n in enumerate(counts) if n})
        noted = longs(np.flatnonzero(np.isin(rows.codes, tuple(self.noted))))
        if len(noted):
            every = (rows.topic, rows.partition, rows.offset, array_of(rows.codes, pa.int8()))
            self.notes.append(pa.table([each.take(noted) for each in every], VERDICTS_SCHEMA))
        odd = longs(np.flatnonzero((rows.codes != 0) & (rows.codes != UNSTAMPED)))
        if len(odd):
            self._tell(rows, odd)
        if expected is not None and self.verdicts["gap"]:
            self._tell_gaps(rows, expected)

    def _tell_gaps(self, rows: VerdictRows, expected: Callable[[int], int]) -> None:
        """Of each producer the first, by its place: a task that runs again tells the same ones."""
        at = np.flatnonzero(rows.codes == _GAP)
        taken = longs(at)
        places = {
            name: getattr(rows, name).take(taken) for name in ("topic", "partition", "offset")
        }
        order = pc.sort_indices(pa.table(places), [(name, "ascending") for name in places])
        # The first ones alone are looked at singly: behind a gap that nobody accepts all are gaps.
        who = rows.producer.take(taken).take(order).dictionary_encode()
        _, firsts = np.unique(values_of(who.indices), return_index=True)
        for place in np.sort(firsts).tolist():
            row = int(at[order[place].as_py()])
            producer = rows.producer[row].as_py()
            if len(self._gaps) >= GAPS_TOLD_MAX:
                return
            if producer not in self._gaps:
                found = [rows.topic, rows.partition, rows.offset, rows.epoch, rows.sequence]
                topic, partition, offset, epoch, got = (each[row].as_py() for each in found)
                wanted = expected(row)
                self._gaps[producer] = [
                    topic,
                    partition,
                    told(producer),
                    epoch,
                    wanted,
                    got,
                    offset,
                ]

    @property
    def gaps(self) -> list[list[Any]]:
        """Topic, partition, producer, epoch, the number that was expected, the one that came, and
        where that lies."""
        return sorted(self._gaps.values())

    def _tell(self, rows: VerdictRows, odd: Any) -> None:
        keys = {
            "topic": rows.topic,
            "partition": rows.partition,
            "producer": rows.producer,
            "code": array_of(rows.codes, pa.int8()),
        }
        found = pa.table({name: each.take(odd) for name, each in keys.items()})
        found = found.append_column("offset", rows.offset.take(odd))
        asked = [("offset", "count"), ("offset", "min"), ("offset", "max")]
        sums = found.group_by(list(keys), use_threads=False).aggregate(asked)
        # Of too many the same are told, in whatever order the rows came: a task may run again.
        for row in sums.sort_by([(name, "ascending") for name in keys]).to_pylist():
            of = _Of(row["topic"], row["partition"], row["producer"], NAMES[row["code"]])
            span = _Span(row["offset_count"], row["offset_min"], row["offset_max"])
            known = self._told.get(of)
            if known is not None:
                self._told[of] = _Span(
                    known.count + span.count,
                    min(known.offset_first, span.offset_first),
                    max(known.offset_last, span.offset_last),
                )
            elif len(self._told) < TOLD_MAX:
                self._told[of] = span

    @property
    def told(self) -> list[list[Any]]:
        return sorted(
            [of.topic, of.partition, told(of.producer), of.verdict, *_numbers(span)]
            for of, span in self._told.items()
        )


def _numbers(span: _Span) -> Iterator[int]:
    yield from (span.count, span.offset_first, span.offset_last)
