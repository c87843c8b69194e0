"""Spread producers' records on their way to be written before they are judged.

Nearly always no record has to go. So tasks let all of them pass, as if each were next, and leave
their stamps in files, cut by shard: the source is read once, and no job is added. The tasks that
write judge the shards out of these files when they have written. Where a record has to go after
all, the driver aborts the attempt with all that it wrote.

A task leaves two files: stamps, and behind them a report that says how many records of which
partition they are of. One that Spark runs again leaves both once more, under other names. Whether
all that passed was judged, the driver compares at the end.

Imported by every Python worker, so nothing here loads pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, longs, values_of
from eos.dedup import stamp_shards
from eos.dedup.buckets import SHARDS
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.record_position import by_partition, unpacked
from eos.dedup.spool import unwritten
from eos.errors import AttemptFailedError, EosError, UnavailableError
from eos.kafka.api import TopicPartition
from eos.seal import Seal, of_this_process

# What it gets of each row: `at` (`place`), producer, epoch, sequence, and its topic if the source
# has several.
Columns = tuple[Any, ...]
_SHARD = pa.field("shard", pa.uint8())


class SpooledRange(NamedTuple):
    """Of one partition of the source, records that a task let pass."""

    topic: str
    partition: int
    first: int  # offsets
    last: int
    records: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def and_(self, more: SpooledRange) -> SpooledRange:
        first, last = min(self.first, more.first), max(self.last, more.last)
        return self._replace(records=self.records + more.records, first=first, last=last)


Places = tuple[SpooledRange, ...]  # of one report


class Spool(NamedTuple):
    """By the tasks of an attempt: files of stamps, and of how many records of each partition."""

    files: tuple[str, ...]
    counts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OptimisticPass:
    """One attempt. `work` is its folder. `topic`: the only one that rows are of; empty: they say
    it."""

    pipeline: str
    work: str
    topic: str = ""
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[Sequence[Any]]) -> Iterator[Any]:
        """As Spark calls an Arrow function over an iterator: an array of codes for each batch."""
        try:
            yield from self.codes(map(tuple, batches))
        except EosError as error:
            raise self.seal.crossing(error) from error

    def codes(self, batches: Iterator[Columns], _is_full: object = None) -> Iterator[Any]:
        """Each batch's at once: nothing waits."""
        with self._writing():
            noting = _StampSpooler.of(self)
        with closing(noting):
            for batch in batches:
                with self._writing():
                    noting.add(*batch)
                yield array_of(np.zeros(len(batch[0]), np.int8), pa.int8())
            with self._writing():
                noting.report()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = "the stamps of producers' records"
            raise unwritten(self.pipeline, what, self.work, error) from error

    def left(self) -> Spool:
        """Behind them all. Raises if tasks do not agree on what they read: then something was gone
        when one of them ran again, or records are read in parts that overlap."""
        files: dict[Places, str] = {}
        of_task: dict[str, dict[int, list[Places]]] = {}
        for place in sorted(Path(self.work).glob("*.passed")):
            report = json.loads(place.read_text(encoding="ascii"))
            places = tuple(SpooledRange(*each) for each in report["places"])
            task = of_task.setdefault(report["task"] or place.name, {})
            task.setdefault(report["attempt"], []).append(places)
            if places:
                files.setdefault(places, str(place.with_suffix(".stamps")))
        for task in of_task.values():
            # A task reads a part of the source, or several, one after the other, with a report of
            # each. Of its runs the last one counts; one that died before in the middle has fewer.
            last = sorted(task[max(task)])
            for other in map(sorted, task.values()):
                if len(other) >= len(last) and other != last:
                    raise self._disagree(*itertools.chain(*last, *other))
        every = sorted(itertools.chain.from_iterable(files))
        for before, behind in itertools.pairwise(every):
            if before.tp == behind.tp and behind.first <= before.last:
                raise self._disagree(before, behind)
        counts: Counter[TopicPartition] = Counter()
        for each in every:
            counts[each.tp] += each.records
        return Spool(tuple(files.values()), counts)

    def clear(self) -> None:
        """What was left: all of it is judged."""
        for place in Path(self.work).glob("*"):
            if place.suffix in {".stamps", ".passed"}:
                place.unlink(missing_ok=True)

    def _disagree(self, *places: SpooledRange) -> EosError:
        told = ", ".join(f"{p.topic}-{p.partition} {p.first} to {p.last}" for p in places)
        return AttemptFailedError(
            f"{self.pipeline}: tasks read the same records and do not agree on them: {told}",
            hint="did the source lose records meanwhile, by retention or compaction? They are "
            "read again by the next attempt",
        )


@dataclass(slots=True)
class _StampSpooler:
    """Beside one task's rows: their stamps, batch by batch, each in the order of shards."""

    topic: str
    schema: pa.Schema
    place: Path
    file: BinaryIO
    stamps: Any
    places: dict[TopicPartition, SpooledRange] = field(default_factory=dict)

    @classmethod
    def of(cls, stage: OptimisticPass) -> _StampSpooler:
        schema = stamp_shards.schema(is_of_one_topic=bool(stage.topic)).insert(0, _SHARD)
        place = Path(stage.work, f"{uuid.uuid4().hex}.stamps")
        file = place.open("wb")
        return cls(stage.topic, schema, place, file, pa.ipc.new_file(file, schema))

    def add(self, at: Any, producer: Any, epoch: Any, sequence: Any, *topics: Any) -> None:
        names, partition, offset = unpacked(at, topics, self.topic)
        for tp, rows in by_partition(names, partition) if len(at) else ():
            own = values_of(offset)[rows]
            found = SpooledRange(*tp, int(own.min()), int(own.max()), len(own))
            self.places[tp] = self.places[tp].and_(found) if tp in self.places else found
        # Cast, since Spark may be told to have offsets of 64 bits.
        given = zip((at, producer, epoch, sequence, *topics), list(self.schema)[1:], strict=True)
        columns = [column.cast(of.type) for column, of in given]
        shards = stamp_shards.shards_of(columns[1])
        order = longs(np.argsort(shards, kind="stable"))  # of 8 bits: numpy counts them
        # Taken, which copies: a column as it came keeps all of its batch in memory.
        ordered = [each.take(order) for each in (array_of(shards, pa.uint8()), *columns)]
        self.stamps.write_batch(pa.RecordBatch.from_arrays(ordered, schema=self.schema))

    def report(self) -> None:
        """Whole, or not at all. The task's last row waits for it: who is done has left one."""
        self.stamps.close()
        self.file.close()
        task, attempt = _task()
        says = {"task": task, "attempt": attempt, "places": sorted(self.places.values())}
        unfinished = self.place.with_suffix(".part")
        unfinished.write_text(json.dumps(says), encoding="ascii")
        os.replace(unfinished, self.place.with_suffix(".passed"))  # noqa: PTH105 - as in `leave`

    def close(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True)
class DeferredCheck:
    """For the tasks that write, which begin when all that read have ended: the first so many judge
    a part of the shards each, out of what those have left."""

    stage: ProducerScopeStage
    trusting: OptimisticPass
    tasks: int

    def __call__(self, task: int) -> None:
        if task < self.tasks:
            self.stage.judge(self._parts(range(task, SHARDS, self.tasks)))

    def _parts(self, numbers: Sequence[int]) -> Iterator[stamp_shards.Part]:
        """Those of a shard together, in the order of the files."""
        files = self.trusting.left().files
        for number in numbers:
            for file in files:  # one at a time: there may be more of them than a process may open
                try:
                    yield from self._part(number, file)
                except (OSError, pa.ArrowException) as error:
                    raise UnavailableError(
                        f"{self.stage.pipeline}: stamps of producers' records can't be read: "
                        f"{error}",
                        hint="executors on other machines need the state root under the same path",
                    ) from error

    def _part(self, number: int, place: str) -> Iterator[stamp_shards.Part]:
        bounds = np.array([number, number + 1], np.uint8)  # of the same type: nothing is cast
        with pa.memory_map(place) as source:
            file = pa.ipc.open_file(source)
            for at in range(file.num_record_batches):
                shards, *columns = file.get_batch(at).columns
                start, end = np.searchsorted(values_of(shards), bounds).tolist()
                if start < end:
                    own = [each.slice(start, end - start) for each in columns]
                    yield number, pa.RecordBatch.from_arrays(own, schema=self.stage.schema)


def _task() -> tuple[str, int]:
    """Which of Spark's this is, however often it runs, and the number of this run; or none."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return "", 0
    return f"{context.stageId()}.{context.partitionId()}", context.taskAttemptId()
