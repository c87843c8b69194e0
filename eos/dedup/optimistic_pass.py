"""How are records with `scope: producer` written before they are validated?

Nearly always dedup drops no record. So the tasks that read the source pass on all records, as if
dedup had accepted them. They write the stamps (producer id, epoch, sequence) to files, sorted by
shard (a hash of the producer id). So the source is read once, and no extra Spark job is needed.
After the write, the writing tasks validate the shards from these files. If dedup has to drop a
record that was written, the driver aborts the whole attempt.

A reading task writes two files: the stamps, and then a report with the number of records per
partition. If Spark runs a task again, it writes both files again under other names. At the end the
driver checks that as many records were validated as were passed on.

Every Python worker imports this module, so it must not load pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from eos.arrow import array_of, longs, values_of
from eos.dedup import stamp_shards
from eos.dedup.buckets import SHARDS
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.record_position import by_partition, unpacked
from eos.dedup.spool import write_error
from eos.errors import AttemptFailedError, EosError, UnavailableError
from eos.folder import Folder
from eos.kafka.api import TopicPartition
from eos.seal import Seal, of_this_process

# Columns of a batch: `at` (see `record_position`), producer, epoch, sequence, and the topic if the
# source has several topics.
Columns = tuple[Any, ...]
_SHARD = pa.field("shard", pa.uint8())
_STAMPS, _PASSED = ".stamps", ".passed"  # the ends of the files' names


class SpooledRange(NamedTuple):
    """Records of one source partition that a task passed on without validation."""

    topic: str
    partition: int
    first: int  # offset of the first record; `last`: of the last one
    last: int
    records: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def and_(self, more: SpooledRange) -> SpooledRange:
        first, last = min(self.first, more.first), max(self.last, more.last)
        return self._replace(records=self.records + more.records, first=first, last=last)


Places = tuple[SpooledRange, ...]  # the ranges of one report


class Spool(NamedTuple):
    """Files with stamps that the tasks of one attempt wrote, and record counts per partition."""

    files: tuple[str, ...]
    counts: Counter[TopicPartition]


@dataclass(frozen=True, slots=True)
class OptimisticPass:
    """Function that accepts all rows of one attempt unseen and writes their stamps to files.

    `work` is the attempt's folder. `topic` is the only source topic; if it is empty, each row names
    its topic."""

    pipeline: str
    work: Folder
    topic: str = ""
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[Sequence[Any]]) -> Iterator[Any]:
        """Yield one array of verdict codes per batch (Spark's contract for iterator functions)."""
        with self.seal.crossing_errors():
            yield from self.codes(map(tuple, batches))

    def codes(self, batches: Iterator[Columns], _is_full: object = None) -> Iterator[Any]:
        """Yield the code of `appended` for all rows of each batch; at the end, write the report."""
        with self._writing():
            spooler = _StampSpooler.of(self)
        with closing(spooler):
            for batch in batches:
                with self._writing():
                    spooler.add(*batch)
                yield array_of(np.zeros(len(batch[0]), np.int8), pa.int8())
            with self._writing():
                spooler.report()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            files = "the stamps of producers' records"
            raise write_error(self.pipeline, files, str(self.work), error) from error

    def spool(self) -> Spool:
        """Return the stamp files of all tasks. Call it after all reading tasks have ended.

        Raise AttemptFailedError if two runs of one task read different records, because the source
        lost records in between, or if the ranges of two tasks overlap."""
        files: dict[Places, str] = {}
        of_task: dict[str, dict[int, list[Places]]] = {}
        for name in sorted(name for name in self.work.files() if name.endswith(_PASSED)):
            report = json.loads(self.work.read(name))
            places = tuple(SpooledRange(*each) for each in report["places"])
            task = of_task.setdefault(report["task"] or name, {})
            task.setdefault(report["attempt"], []).append(places)
            if places:
                files.setdefault(places, f"{name.removesuffix(_PASSED)}{_STAMPS}")
        for task in of_task.values():
            # A task reads one or more parts of the source in turn and writes a report for each. The
            # reports of its last run count. An earlier run may have fewer reports, if it died.
            last = sorted(task[max(task)])
            for other in map(sorted, task.values()):
                if len(other) >= len(last) and other != last:
                    raise self._disagree(*itertools.chain(*last, *other))
        every = sorted(itertools.chain.from_iterable(files))
        for before, after in itertools.pairwise(every):
            if before.tp == after.tp and after.first <= before.last:
                raise self._disagree(before, after)
        counts: Counter[TopicPartition] = Counter()
        for each in every:
            counts[each.tp] += each.records
        return Spool(tuple(files.values()), counts)

    def clear(self) -> None:
        """Delete the stamp files and their reports. Call this after all stamps were validated."""
        for name in self.work.files():
            if name.endswith((_STAMPS, _PASSED)):
                self.work.remove(name)

    def _disagree(self, *places: SpooledRange) -> EosError:
        ranges = ", ".join(f"{p.topic}-{p.partition} {p.first} to {p.last}" for p in places)
        return AttemptFailedError(
            "source_changed_during_attempt",
            f"{self.pipeline}: tasks read different records in the same source ranges: {ranges}",
            hint="retention or compaction may have removed source records during the attempt; "
            "the next attempt reads them again",
        )


@dataclass(slots=True)
class _StampSpooler:
    """Writer of the stamps of one task's rows: one file, each batch sorted by shard."""

    topic: str
    schema: pa.Schema
    work: Folder
    name: str
    file: BinaryIO
    stamps: Any
    places: dict[TopicPartition, SpooledRange] = field(default_factory=dict)

    @classmethod
    def of(cls, stage: OptimisticPass) -> _StampSpooler:
        schema = stamp_shards.schema(is_of_one_topic=bool(stage.topic)).insert(0, _SHARD)
        name = uuid.uuid4().hex
        file = stage.work.open(f"{name}{_STAMPS}")
        return cls(stage.topic, schema, stage.work, name, file, pa.ipc.new_file(file, schema))

    def add(self, at: Any, producer: Any, epoch: Any, sequence: Any, *topics: Any) -> None:
        names, partition, offset = unpacked(at, topics, self.topic)
        for tp, rows in by_partition(names, partition) if len(at) else ():
            own = values_of(offset)[rows]
            found = SpooledRange(*tp, int(own.min()), int(own.max()), len(own))
            self.places[tp] = self.places[tp].and_(found) if tp in self.places else found
        given = zip((at, producer, epoch, sequence, *topics), list(self.schema)[1:], strict=True)
        # Spark can be configured to use 64-bit Arrow offsets, so cast to the schema's types.
        columns = [column.cast(of.type) for column, of in given]
        shards = stamp_shards.shards_of(columns[1])
        order = longs(np.argsort(shards, kind="stable"))  # 8-bit values: numpy uses a radix sort
        # take() copies. The original columns would keep their whole batch in memory.
        ordered = [each.take(order) for each in (array_of(shards, pa.uint8()), *columns)]
        self.stamps.write_batch(pa.RecordBatch.from_arrays(ordered, schema=self.schema))

    def report(self) -> None:
        """Write a report, atomically: for each source partition, the first and last offset and the
        number of records that the task read and passed on. Dedup has not checked them yet.

        A task that ends without an error has written it."""
        self.stamps.close()
        self.file.close()
        task, attempt = _task()
        report = {"task": task, "attempt": attempt, "places": sorted(self.places.values())}
        self.work.write(f"{self.name}{_PASSED}", json.dumps(report).encode("ascii"))

    def close(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True)
class DeferredCheck:
    """Validation of stamps by the tasks that wrote the records (`scope: producer`).

    A task writes after all tasks have read their rows, so all stamp files exist. Each of the first
    `tasks` writing tasks validates its part of the shards."""

    stage: ProducerScopeStage
    passed: OptimisticPass
    tasks: int

    def __call__(self, task: int) -> None:
        if task < self.tasks:
            self.stage.validate(self._parts(range(task, SHARDS, self.tasks)))

    def _parts(self, numbers: Sequence[int]) -> Iterator[stamp_shards.Part]:
        """Yield the stamps shard by shard, and within a shard in the order of the files."""
        files = self.passed.spool().files
        with TemporaryDirectory(prefix="eos-stamps-") as aside:
            for number in numbers:
                for file in files:  # one at a time: there may be more than a process may open
                    try:
                        yield from self._part(number, file, Path(aside))
                    except (OSError, pa.ArrowException) as error:
                        raise UnavailableError(
                            "dedup_files_unreadable",
                            f"{self.stage.pipeline}: stamps of producers' records can't be read: "
                            f"{error}",
                            hint="executors on other machines need the state root under the same "
                            "path",
                        ) from error

    def _part(self, number: int, file: str, aside: Path) -> Iterator[stamp_shards.Part]:
        bounds = np.array([number, number + 1], np.uint8)  # uint8 like the column, so no cast
        with pa.memory_map(str(self.passed.work.on_disk(file, aside))) as source:
            stamps = pa.ipc.open_file(source)
            for at in range(stamps.num_record_batches):
                shards, *columns = stamps.get_batch(at).columns
                start, end = np.searchsorted(values_of(shards), bounds).tolist()
                if start < end:
                    own = [each.slice(start, end - start) for each in columns]
                    yield number, pa.RecordBatch.from_arrays(own, schema=self.stage.schema)


def _task() -> tuple[str, int]:
    """Return the id of Spark's task, equal for all its runs, and the id of this run."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return "", 0
    return f"{context.stageId()}.{context.partitionId()}", context.taskAttemptId()
