"""What a task leaves behind once all records of a home were judged: the states that moved on, as
Parquet files that no Delta commit names yet, and a report that names them."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eos.dedup.account import Account
from eos.dedup.homes import Kept, bucket_of, folder_of, grown, write_states
from eos.errors import UnavailableError
from eos.transaction.port import TopicPartition


class Judged(Protocol):
    """`home` has `states`, those of the buckets that were `read`; `changed` ones moved on."""

    home: TopicPartition
    kept: Kept
    account: Account
    read: set[int]
    changed: set[int]
    expired: int

    @property
    def states(self) -> pa.Table: ...

    def load(self, buckets: set[int]) -> None: ...

    def says(self) -> Mapping[str, Any]:
        """What its report tells beyond the counts."""
        ...


@dataclass(frozen=True, slots=True)
class Leaving:
    """`folder` is the table's, `work` the attempt's own."""

    pipeline: str
    folder: str
    work: str

    def leave(self, judged: Judged) -> None:
        """Writes the states that moved on, then the report that names them."""
        kept, home, account = judged.kept, judged.home, judged.account
        changed, buckets = judged.changed, kept.buckets
        if changed:
            untouched = sum(f.rows for b, f in kept.files.items() if b not in judged.read)
            buckets = grown(buckets, judged.states.num_rows + untouched)
        if buckets != kept.buckets:
            judged.load(set(kept.files))
            changed = set(range(buckets))
        report = {
            "topic": home.topic,
            "partition": home.partition,
            "records": account.records,
            **judged.says(),
            "verdicts": dict(sorted(account.verdicts.items())),
            "expired": judged.expired,
            "told": account.told,
            "gaps": account.gaps,
            "buckets": buckets,
            "changed": sorted(changed),
        }
        try:
            report["files"] = self._written(judged, changed, buckets)
            report["notes"] = self._noted(account)
            self._reported(report)
        except OSError as error:
            raise UnavailableError(
                f"{self.pipeline}: the states of producers can't be written to {self.folder}: "
                f"{error.strerror or error}",
                hint="is there room, and may this user write there? Executors on other machines "
                "need the state root under the same path",
                path=self.folder,
            ) from error

    def _written(self, judged: Judged, changed: set[int], buckets: int) -> list[list[Any]]:
        """`[bucket, path, rows, bytes]` of each bucket that has states, in the buckets' order."""
        if not changed:
            return []
        states = judged.states.combine_chunks()
        bucket = bucket_of(whole(states.column("producer")), buckets)
        # Numbers of 16 bits, which all buckets fit into, numpy sorts several times faster.
        order = np.argsort(bucket.astype(np.uint16), kind="stable")
        starts = np.searchsorted(bucket[order], np.arange(buckets + 1)).tolist()
        states = states.take(pa.array(order))
        inner, run = folder_of(judged.home), uuid.uuid4().hex
        Path(self.folder, inner).mkdir(parents=True, exist_ok=True)
        files = []
        for each in sorted(changed):
            start, end = starts[each], starts[each + 1]
            if start == end:
                continue
            path = f"{inner}/{run}-{each}.parquet"
            place = str(Path(self.folder, path))
            write_states(place, states.slice(start, end - start))
            files.append([each, path, end - start, Path(place).stat().st_size])
        return files

    def _noted(self, account: Account) -> str:
        """The file of the records that are remembered one by one; empty: there are none."""
        if not account.notes:
            return ""
        place = Path(self.work, f"{uuid.uuid4().hex}.parquet")
        pq.write_table(pa.concat_tables(account.notes), place, compression="zstd")
        return str(place)

    def _reported(self, report: Mapping[str, Any]) -> None:
        """Whole, or not at all."""
        place = Path(self.work, f"{uuid.uuid4().hex}.json")
        unfinished = place.with_suffix(".part")
        unfinished.write_text(json.dumps(report), encoding="ascii")
        os.replace(unfinished, place)  # noqa: PTH105 - the same, and says what it does


def whole(column: Any) -> Any:
    """A chunked array as an array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks or [pa.array([], column.type)])
