"""The dedup stage: what runs inside a Spark task, right after the source and before any filter.

It sees the coordinates and the stamp of each record, answers with a code for each, and at the end
of a partition leaves two things behind: the partition's new states, as Parquet files in the table's
folder that no Delta commit names yet, and one *report*, a JSON file in the attempt's folder, which
names them. Both come from the state before, the rows and the attempt's clock alone: a task that
Spark runs again leaves the same under other names, and either may be taken.

Imported by every Python worker, so nothing here loads pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.dedup.homes import STATES, Kept, bucket_of, grown, write_states
from eos.dedup.judge import Judge
from eos.dedup.policy import Policy
from eos.dedup.refusal import told
from eos.errors import EosError, UnavailableError, crossing
from eos.transaction.port import TopicPartition

# Rows that are decided together. Spark keeps as many rows aside until their answers come.
CHUNK_ROWS = 1 << 17

# topic, partition, offset, producer, epoch, sequence
Columns = tuple[Any, Any, Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class DedupStage:
    """One attempt. `folder` is the table's, `work` the attempt's own; `known` are the states that
    it begins with."""

    pipeline: str
    folder: str
    work: str
    policy: Policy
    known: Mapping[TopicPartition, Kept]
    now_ms: int

    def __call__(self, batches: Iterator[Columns]) -> Iterator[Any]:
        """As Spark calls an Arrow function over an iterator: an array of codes for each batch."""
        try:
            yield from self.codes(batches)
        except EosError as error:
            raise crossing(error) from error

    def codes(self, batches: Iterator[Columns]) -> Iterator[Any]:
        judges: dict[TopicPartition, Judge] = {}
        waiting: list[Columns] = []
        for batch in batches:
            waiting.append(batch)
            if sum(len(each[0]) for each in waiting) >= CHUNK_ROWS:
                yield from self._judged(waiting, judges)
                waiting = []
        if waiting:
            yield from self._judged(waiting, judges)
        for judge in judges.values():
            self._finish(judge)

    def _judged(self, batches: list[Columns], judges: dict[TopicPartition, Judge]) -> Iterator[Any]:
        sizes = [len(each[0]) for each in batches]
        columns = [pa.concat_arrays(list(each)) for each in zip(*batches, strict=True)]
        codes = np.zeros(sum(sizes), np.int8)
        for tp, rows in _by_partition(columns[0], columns[1]):
            if tp not in judges:
                kept = self.known.get(tp, Kept())
                place = Path(self.folder)
                judges[tp] = Judge(self.pipeline, tp, self.policy, kept, place, self.now_ms)
            part = columns[2:] if rows is None else [each.take(rows) for each in columns[2:]]
            found = judges[tp].judge(*part)
            codes[slice(None) if rows is None else np.asarray(rows)] = found
        start = 0
        for size in sizes:
            yield pa.array(codes[start : start + size], pa.int8())
            start += size

    def _finish(self, judge: Judge) -> None:
        """Writes the states that moved on, then the report that names them."""
        kept, tp = judge.kept, judge.partition
        changed, buckets = judge.changed, kept.buckets
        if changed:
            untouched = sum(f.rows for b, f in kept.files.items() if b not in judge.read)
            buckets = grown(buckets, judge.states.num_rows + untouched)
        if buckets != kept.buckets:
            judge.load(set(kept.files))
            changed = set(range(buckets))
        report = {
            "topic": tp.topic,
            "partition": tp.partition,
            "records": judge.records,
            "offset_first": judge.offset_first,
            "offset_last": judge.offset_last,
            "verdicts": dict(sorted(judge.verdicts.items())),
            "expired": judge.expired,
            "told": sorted(
                [told(who), what, each.count, each.offset_first, each.offset_last]
                for (who, what), each in judge.told.items()
            ),
            "buckets": buckets,
            "changed": sorted(changed),
        }
        try:
            report["files"] = self._written(judge, changed, buckets)
            self._reported(report)
        except OSError as error:
            raise UnavailableError(
                f"{self.pipeline}: the states of producers can't be written to {self.folder}: "
                f"{error.strerror or error}",
                hint="is there room, and may this user write there? Executors on other machines "
                "need the state root under the same path",
                path=self.folder,
            ) from error

    def _written(self, judge: Judge, changed: set[int], buckets: int) -> list[list[Any]]:
        """`[bucket, path, rows, bytes]` of each bucket that has states, in the buckets' order."""
        if not changed:
            return []
        states = judge.states.select(STATES.names).combine_chunks()
        bucket = bucket_of(_whole(states.column("producer")), buckets)
        order = np.argsort(bucket, kind="stable")
        found, starts = np.unique(bucket[order], return_index=True)
        ends = np.append(starts[1:], len(order))
        tp = judge.partition
        inner, run = f"{tp.topic}-{tp.partition}", uuid.uuid4().hex
        Path(self.folder, inner).mkdir(parents=True, exist_ok=True)
        files = []
        for each, start, end in zip(found.tolist(), starts, ends, strict=True):
            if each in changed:
                path = f"{inner}/{run}-{each}.parquet"
                place = str(Path(self.folder, path))
                write_states(place, states.take(pa.array(order[start:end])))
                files.append([each, path, int(end - start), Path(place).stat().st_size])
        return files

    def _reported(self, report: Mapping[str, Any]) -> None:
        """Whole, or not at all."""
        place = Path(self.work, f"{uuid.uuid4().hex}.json")
        unfinished = place.with_suffix(".part")
        unfinished.write_text(json.dumps(report), encoding="ascii")
        os.replace(unfinished, place)  # noqa: PTH105 - the same, and says what it does


def _by_partition(topic: Any, partition: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """Each partition with its rows; None: all of them, as Spark's source has it."""
    places = pa.table({"topic": topic, "partition": partition})
    found = places.group_by(["topic", "partition"]).aggregate([]).to_pylist()
    for each in found:
        rows = None
        if len(found) > 1:
            is_here = pc.and_(
                pc.equal(topic, each["topic"]), pc.equal(partition, each["partition"])
            )
            rows = pc.indices_nonzero(is_here)
        yield TopicPartition(each["topic"], each["partition"]), rows


def _whole(column: Any) -> Any:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else column
