"""How does a task look up the verdicts of records that dedup validated earlier in the attempt?

A verdict is dedup's result for a record, such as `appended` or `duplicate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eos.arrow import array_of, no_rows, values_of
from eos.dedup.record_position import by_partition, unpacked
from eos.dedup.summary import VERDICTS_SCHEMA
from eos.dedup.verdict_rows import Codes
from eos.errors import AttemptFailedError, UnavailableError
from eos.folder import Folder, LocalFolder
from eos.kafka.api import TopicPartition
from eos.seal import Seal, of_this_process

# Columns of a batch: topic, partition, offset
Places = tuple[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class VerdictLookup:
    """Function that returns the verdict codes that were decided earlier in the attempt.

    `files` list the records with verdicts other than `appended`. `counts` has the number of
    validated records per partition; other partitions are not checked. `topic` is the only source
    topic; if it is empty, each row names its topic."""

    pipeline: str
    files: tuple[str, ...]
    counts: Mapping[TopicPartition, int]
    topic: str = ""
    work: Folder = field(default_factory=lambda: LocalFolder(Path()))  # the attempt's folder
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield one array of verdict codes per batch (Spark's contract for iterator functions)."""
        # With a single column, Spark passes the column itself instead of a tuple.
        split = ((each[0], each[1:]) if isinstance(each, tuple) else (each, ()) for each in batches)
        rows = (unpacked(at, topics, self.topic) for at, topics in split)
        with self.seal.crossing_errors():
            yield from self.codes(rows)

    def codes(self, batches: Iterator[Places], _is_full: object = None) -> Iterator[Any]:
        """Yield the codes of each batch without buffering.

        Raise AttemptFailedError at the end if a partition's record count differs from `counts`."""
        verdicts = self._read()
        counts: Counter[TopicPartition] = Counter()
        for topic, partition, offset in batches:
            offsets = values_of(offset)
            codes = np.zeros(len(offsets), np.int8)
            for tp, rows in by_partition(topic, partition):
                counts[tp] += len(offsets[rows])
                if tp in verdicts:
                    codes[rows] = _found(*verdicts[tp], offsets[rows])
            yield array_of(codes, pa.int8())
        self._require_all(counts)

    def _read(self) -> Mapping[TopicPartition, tuple[Any, Codes]]:
        """Return offsets and codes of each partition, ordered by offset."""
        try:
            parts = [_verdicts(self.work, file) for file in self.files]
        except (OSError, pa.ArrowException) as error:
            raise UnavailableError(
                "dedup_files_unreadable",
                f"{self.pipeline}: verdicts on producers' records can't be read: {error}",
                hint="executors on other machines need the state root under the same path",
            ) from error
        table = pa.concat_tables([no_rows(VERDICTS_SCHEMA), *parts]).combine_chunks()
        table = table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
        offset, code = (values_of(table.column(name)) for name in ("offset", "code"))
        found = {}
        for tp, rows in by_partition(table.column("topic"), table.column("partition")):
            found[tp] = offset[rows], code[rows]
        return found

    def require_all(self, passed: Mapping[TopicPartition, int]) -> None:
        """Raise AttemptFailedError unless `passed` equals `counts`.

        `passed` has the number of records per partition; a partition that is not in it has none."""
        self._require_all({**dict.fromkeys(self.counts, 0), **passed})

    def require_total(self, records: int) -> None:
        """Raise AttemptFailedError unless `records` equals the number of validated records."""
        validated = sum(self.counts.values())
        if records != validated:
            raise self._changed("all partitions", validated, records)

    def _require_all(self, counts: Mapping[TopicPartition, int]) -> None:
        for tp, count in sorted(counts.items()):
            validated = self.counts.get(tp, count)
            if validated != count:
                raise self._changed(str(tp), validated, count)

    def _changed(self, place: str, validated: int, read: int) -> AttemptFailedError:
        return AttemptFailedError(
            "source_changed_during_attempt",
            f"{self.pipeline}: dedup validated {validated:,} records of {place}, but {read:,} were "
            "read afterwards",
            hint="retention or compaction may have removed source records during the attempt; the "
            "next attempt reads them again",
        )


def first_of(work: Folder, files: Iterable[str], code: int) -> tuple[str, int, int]:
    """Return topic, partition and offset of the first record with this code. One must exist."""
    table = pa.concat_tables([_verdicts(work, file) for file in files])
    own = table.filter(pc.equal(table.column("code"), code)).select(
        ["topic", "partition", "offset"]
    )
    (first,) = (
        own.sort_by([(name, "ascending") for name in own.column_names]).slice(0, 1).to_pylist()
    )
    return first["topic"], first["partition"], first["offset"]


def _verdicts(work: Folder, file: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(work.read(file)), schema=VERDICTS_SCHEMA)


def _found(known: Any, codes: Codes, offsets: Any) -> Codes:
    at = np.minimum(np.searchsorted(known, offsets), len(known) - 1)
    found: Codes = np.where(known[at] == offsets, codes[at], 0).astype(np.int8)
    return found
