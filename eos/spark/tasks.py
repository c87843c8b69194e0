"""What runs inside a Spark task: encode, write, or both in one.

Imported by every Python worker, so nothing here loads pyspark.sql, YAML or the configuration.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from eos.deadline import Deadline
from eos.encode.stage import MANIFEST_TARGET, EncodeStage, read_manifest
from eos.errors import AttemptFailedError, EosError
from eos.faults import Dies
from eos.kafka.api import Identity, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.seal import Seal, of_this_process
from eos.transaction.writer import Writer


@dataclass(frozen=True, slots=True)
class WriteStage:
    """All that a writer needs to know of its attempt."""

    settings: KafkaSettings
    profile: TransactionProfile
    transactional_id: str
    identity: Identity
    targets: Targets
    timeout_ms: int
    crash: Dies

    def write(self, batches: Iterator[pa.RecordBatch], task_attempt: int) -> pa.RecordBatch:
        """Sends what the encode stage made, in the order it comes, and returns the receipts."""
        # Rule R1. The broker compares sequence ranges, not bytes: a second attempt that sends
        # other rows under the same identity would be acknowledged and thrown away. A first
        # attempt may have sent anything up to its death, so a second one never sends.
        if task_attempt > 0:
            raise AttemptFailedError(
                f"writer task attempt {task_attempt}: the one before may have sent already"
            )
        wire = KafkaClient.shared(self.settings, self.profile)
        writer = Writer(
            wire,
            self.transactional_id,
            self.identity,
            self.targets,
            Deadline.after_ms(self.timeout_ms),
            self.crash,
        )
        planned: dict[int, int] = {}
        for batch in batches:
            target, records, digest, blob = (
                batch.column(batch.schema.get_field_index(name))
                for name in ("target", "records", "digest", "blob")
            )
            for row, index in enumerate(target.to_pylist()):
                if index == MANIFEST_TARGET:
                    for each, count in read_manifest(blob[row].as_py()).items():
                        planned[each] = planned.get(each, 0) + count
                else:
                    count, value = records[row].as_py(), digest[row].as_py()
                    writer.add(index, blob[row].as_buffer(), count, value)
            writer.advance()
        receipts = writer.finish()
        self.crash.reached("written:after")
        return receipt.rows(receipts, planned)


def nothing(_task: int) -> None:
    """Is left to do behind what a task has written."""


@functools.cache
def _settle() -> None:
    """Once a worker, when all modules are there: they are no garbage.

    Spark has a worker look for garbage after each task. Among all that pyarrow, numpy and the
    Kafka client bring, that takes four times as long as a small micro-batch's own work.
    """
    gc.collect()
    gc.freeze()


def _task() -> tuple[int, int]:
    """This task's partition and attempt number."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not inside a Spark task")
    return context.partitionId(), context.attemptNumber()


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """The map side: rows in, record batches out."""

    stage: EncodeStage
    crash: Dies
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _settle()
        try:
            self.crash.reached("encode:before")
            yield from self.stage.encode(batches, _task()[0])
            self.crash.reached("encode:after")
        except EosError as error:
            raise self.seal.crossing(error) from error


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The reduce side: record batches in, receipts out. `behind` is called with the task's number
    when all of its records are written."""

    stage: WriteStage
    behind: Callable[[int], None] = nothing
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _settle()
        task, attempt = _task()
        try:
            receipts = self.stage.write(batches, attempt)
            self.behind(task)
            yield receipts
        except EosError as error:
            raise self.seal.crossing(error) from error


@dataclass(frozen=True, slots=True)
class EncodeAndWriteTask:
    """Both sides in one task, without a shuffle: for micro-batches of few records."""

    encode: EncodeStage
    write: WriteStage
    behind: Callable[[int], None] = nothing
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _settle()
        task, attempt = _task()
        try:
            receipts = self.write.write(self.encode.encode(batches, task), attempt)
            self.behind(task)
            yield receipts
        except EosError as error:
            raise self.seal.crossing(error) from error
