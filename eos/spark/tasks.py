"""The functions that run inside Spark tasks: they encode rows, write record batches, or do both.

Every Python worker imports this module, so it loads no pyspark.sql, YAML or configuration.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from eos.deadline import Deadline
from eos.encode.stage import MANIFEST_TARGET, EncodeStage, read_manifest
from eos.errors import AttemptFailedError
from eos.faults import Dies
from eos.kafka.api import Identity, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.seal import Seal, of_this_process
from eos.spark.exchange import Exchange
from eos.transaction.writer import Writer

# The hint of an error after which the micro-batch is retried.
_IS_RETRIED = "no action is needed: the micro-batch is retried under another epoch"


@dataclass(frozen=True, slots=True)
class WriteStage:
    """The settings of an attempt's writers. It can be pickled."""

    settings: KafkaSettings
    profile: TransactionProfile
    transactional_id: str
    identity: Identity
    targets: Targets
    timeout_ms: int
    crash: Dies

    def write(
        self,
        batches: Iterator[pa.RecordBatch],
        task_attempt: int,
        client: KafkaClient | None = None,
    ) -> pa.RecordBatch:
        """Send the record batches to Kafka in the order they arrive. The driver gives its client,
        and a worker has one for all of its tasks.

        Return the receipts: what was acknowledged for each target partition. In a second attempt of
        the task, send nothing and raise AttemptFailedError.
        """
        # Rule "one epoch, one attempt". The broker's duplicate filter compares sequence ranges, not
        # bytes:
        # 1. The first task attempt sends some record batches and dies.
        # 2. A second attempt would send other rows under the same identity and sequences.
        # 3. The broker would acknowledge them as duplicates and drop them: the rows are lost.
        if task_attempt > 0:
            raise AttemptFailedError(
                "task_attempt_repeated",
                f"writer task attempt {task_attempt}: an earlier attempt may have sent records",
                hint=_IS_RETRIED,
            )
        writer: Writer | None = None
        planned: dict[int, int] = {}
        records_read = 0
        for batch in batches:
            target, records, digest, blob = (
                batch.column(batch.schema.get_field_index(name))
                for name in ("target", "records", "digest", "blob")
            )
            for row, index in enumerate(target.to_pylist()):
                if index == MANIFEST_TARGET:
                    records_read += records[row].as_py()
                    for each, count in read_manifest(blob[row].as_py()).items():
                        planned[each] = planned.get(each, 0) + count
                else:
                    # The time limit begins here: `batches` may compute rows for a long time before
                    # this task needs the transaction.
                    writer = writer or self._writer(client)
                    count, value = records[row].as_py(), digest[row].as_py()
                    writer.add(index, blob[row].as_buffer(), count, value)
            if writer is not None:
                writer.advance()
        receipts = {} if writer is None else writer.finish()
        self.crash.reached("written:after")
        return receipt.rows(receipts, planned, records_read)

    def _writer(self, client: KafkaClient | None) -> Writer:
        return Writer(
            client or KafkaClient.shared(self.settings, self.profile),
            self.transactional_id,
            self.identity,
            self.targets,
            Deadline.after_ms(self.timeout_ms),
            self.crash,
        )


def nothing(_task: int) -> None:
    """Do nothing: the default for `after_write`."""


@functools.cache
def settle() -> None:
    """Exclude all existing objects from garbage collection, once in each worker process.

    Spark runs Python's garbage collector after each task. With the objects of pyarrow, numpy and
    the Kafka client, a collection takes four times as long as a small micro-batch's own work.
    """
    gc.collect()
    gc.freeze()


def _task() -> tuple[int, int]:
    """Return this Spark task's partition and attempt number, 0 for the first attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("not inside a Spark task")
    return context.partitionId(), context.attemptNumber()


@dataclass(frozen=True, slots=True)
class EncodeTask:
    """The function of an encode task: it turns rows into record batches."""

    stage: EncodeStage
    crash: Dies
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        with self.seal.crossing_errors():
            self.crash.reached("encode:before")
            yield from self.stage.encode(batches, _task()[0])
            self.crash.reached("encode:after")


@dataclass(frozen=True, slots=True)
class WriteTask:
    """The function of a write task: it sends record batches to Kafka, and yields receipts.

    After Kafka has acknowledged all of them, it calls `after_write` with its task number.
    """

    stage: WriteStage
    after_write: Callable[[int], None] = nothing
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        task, attempt = _task()
        with self.seal.crossing_errors():
            receipts = self.stage.write(batches, attempt)
            self.after_write(task)
            yield receipts


@dataclass(frozen=True, slots=True)
class EncodeToFilesTask:
    """The encode task on one machine: rows in, record batches into files. It returns no rows."""

    stage: EncodeStage
    exchange: Exchange
    crash: Dies
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        task, attempt = _task()
        with self.seal.crossing_errors():
            if attempt > 0:
                raise AttemptFailedError(
                    "task_attempt_repeated",
                    f"encode task attempt {attempt}: an earlier attempt may have left record "
                    "batches",
                    hint=_IS_RETRIED,
                )
            self.crash.reached("encode:before")
            with self.exchange.member(task) as member:
                for batch in self.stage.encode(batches, task):
                    member.put(batch)
            self.crash.reached("encode:after")
            yield from ()


@dataclass(frozen=True, slots=True)
class WriteFilesTask:
    """The write task on one machine: it sends the record batches of all files for its number."""

    task: WriteTask
    exchange: Exchange

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (number,) = (number for batch in numbers for number in batch.column(0).to_pylist())
        yield from self.task(self.exchange.batches(number))


@dataclass(frozen=True, slots=True)
class EncodeAndWriteTask:
    """The function of a small micro-batch's single task, which encodes rows and writes them."""

    encode: EncodeStage
    write: WriteStage
    after_write: Callable[[int], None] = nothing
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        task, attempt = _task()
        with self.seal.crossing_errors():
            receipts = self.write.write(self.encode.encode(batches, task), attempt)
            self.after_write(task)
            yield receipts


@dataclass(frozen=True, slots=True)
class ExchangeTask:
    """The function of tasks that encode and write on one machine, without a shuffle.

    All tasks of the job run at the same time. Each encodes its rows, waits until all others have
    encoded theirs, and writes the record batches of its target partitions. So the transaction opens
    after the last row is encoded, as with a shuffle.
    """

    encode: EncodeStage
    write: WriteStage
    exchange: Exchange
    after_write: Callable[[int], None] = nothing
    seal: Seal = field(default_factory=of_this_process, repr=False, compare=False)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        task, attempt = _task()
        with self.exchange.member(task) as member, self.seal.crossing_errors():
            self.write.crash.reached("encode:before")
            for batch in self.encode.encode(batches, task):
                member.put(batch)
            self.write.crash.reached("encode:after")
            member.finish()
            receipts = self.write.write(self.exchange.batches(task), attempt)
            self.after_write(task)
            yield receipts
