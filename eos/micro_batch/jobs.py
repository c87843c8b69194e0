"""Build and run the Spark jobs that encode an attempt's rows and write them to Kafka.

If there are few records, the driver does that itself, without a Spark job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from eos.checkpoint.offset_log import Ranges
from eos.encode.sink_spec import SinkSpec
from eos.encode.stage import SPARK_SCHEMA, EncodeStage
from eos.kafka.api import Identity
from eos.kafka.target_partitions import Targets
from eos.ledger import receipt
from eos.ledger.receipt import Receipt
from eos.micro_batch.stages import Stages
from eos.micro_batch.transaction_watch import collected
from eos.plan.plan import Plan
from eos.spark.dedup_attempt import DedupAttempt
from eos.spark.exchange import Exchange
from eos.spark.fused_step import FusedStep
from eos.spark.python_rows import PythonRows
from eos.spark.session import ARROW_BYTES_MAX
from eos.spark.spark_4_0 import repartition_by_id
from eos.spark.steps import mapped
from eos.spark.tasks import (
    EncodeAndWriteTask,
    EncodeTask,
    EncodeToFilesTask,
    ExchangeTask,
    WriteFilesTask,
    WriteStage,
    WriteTask,
    nothing,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A micro-batch of at most this many offsets runs as one task, without a shuffle: with so few
# records, a second task costs more time than it saves.
ONE_TASK_RECORDS_MAX = 50_000
# The part of the transaction timeout within which the writers of a job must finish. The rest is for
# the ledger record, the group offsets and EndTxn. It counts from each writer's first record
# batch: a transaction opens with its first record, and what comes before may take its time.
_WRITER_SHARE = 0.8
ALL = "read, transform, encode, write"  # the steps of a job, as Spark's UI shows them


class Written(NamedTuple):
    """Receipts per target partition, and the number of source records read, of jobs whose tasks
    read Kafka themselves."""

    receipts: Sequence[Receipt]
    records_read: int


class RowsWritten(NamedTuple):
    """Receipts per target partition, and the Spark job that read the rows and so has Spark's
    counters of them."""

    job: DataFrame
    receipts: Sequence[Receipt]


def is_small(plan: Plan, ranges: Ranges) -> bool:
    """Return whether a micro-batch runs as one task. The size of a DataFrame's is not known."""
    return not plan.is_dataframe and ranges.records_max <= ONE_TASK_RECORDS_MAX


@dataclass(frozen=True, slots=True)
class Jobs:
    """The Spark jobs of one attempt. Their result is a receipt (count, offsets, bytes) per target
    partition."""

    stages: Stages
    batch_id: int
    ranges: Ranges
    identity: Identity

    @property
    def is_in_one_task(self) -> bool:
        return is_small(self.stages.plan, self.ranges)

    def collect(self, job: DataFrame, step: str = "validate for dedup") -> Sequence[Any]:
        """Run the job and return its rows. Spark's UI shows `step`.

        If the broker ends the transaction, or another instance takes over, cancel the job and raise
        AttemptFailedError.
        """
        plan = self.stages.plan
        # Spark's own description of the streaming query names no attempt and no step, and its
        # progress has no rows if tasks read Kafka themselves.
        self.stages.spark.sparkContext.setJobDescription(
            f"{plan.names.pipeline}: micro-batch {self.batch_id}, epoch {self.identity.epoch}: "
            f"{step} (counts and rates: the run's log and metrics)"
        )
        return collected(
            job,
            self.stages.client,
            plan.names.transactional_id,
            self.identity,
            plan.transaction_timeout_ms,
        )

    def write_in_python(
        self, rows: PythonRows, targets: Targets, dedup: DedupAttempt | None = None
    ) -> Written:
        """Read, process, encode and write the records in Python tasks.

        Raise if a planned record was not acknowledged exactly once.
        """
        plan = self.stages.plan
        if self._runs_in_driver(rows, dedup):
            found = self._in_driver(rows, targets)
        elif self.is_in_one_task:
            found = self.collect(self._in_one_task(rows, plan.sinks, targets, dedup), ALL)
        elif rows.reader.task_count <= self.stages.reader.barrier_tasks_max:
            found = self._side_by_side(rows, targets, dedup)
        else:
            found = self._in_two_stages(rows, plan.sinks, targets, dedup)[1]
        return Written(receipt.check(found, targets), receipt.records_read(found))

    def write_rows(
        self,
        out: DataFrame | FusedStep,
        sinks: tuple[SinkSpec, ...],
        targets: Targets,
        dedup: DedupAttempt | None = None,
    ) -> RowsWritten:
        """Encode the rows, and write them. The tasks validate records, too, if `dedup` is given and
        validates after writing.

        Raise if a planned record was not acknowledged exactly once.
        """
        if self.is_in_one_task:
            job = self._in_one_task(out, sinks, targets, dedup)
            found = self.collect(job, ALL)
        else:
            job, found = self._in_two_stages(out, sinks, targets, dedup)
        return RowsWritten(job, receipt.check(found, targets))

    def _runs_in_driver(self, rows: PythonRows, dedup: DedupAttempt | None) -> bool:
        """Return whether the driver's process does the work of a small micro-batch's only task.

        A Spark job takes longer than the work on a few records. But users' functions run in workers
        only, which may hang or use much memory without harm to the driver. So does dedup, whose
        states may be large. And the driver of a cluster may have little memory, and be far from the
        brokers.
        """
        is_one_machine = self.stages.reader.slots > 0
        # Task faults are those of a test, which kills a worker.
        has_faults = bool(self.stages.crash.tasks)
        needs_worker = rows.plan.calls_users_function or dedup is not None or has_faults
        return self.is_in_one_task and is_one_machine and not needs_worker

    def _in_driver(self, rows: PythonRows, targets: Targets) -> Sequence[Any]:
        """Read, process, encode and write the records in this process, and return the receipts."""
        stages, write = self.stages, self._write_stage(targets)
        encode = partial(self._encode_stage(stages.plan.sinks, targets, 1).encode, task_id=0)
        encoded = rows.coalesce(1).in_driver(encode, stages.source.client)
        return receipt.lines(write.write(encoded, 0, stages.client))

    def _in_one_task(
        self,
        out: DataFrame | FusedStep | PythonRows,
        sinks: tuple[SinkSpec, ...],
        targets: Targets,
        dedup: DedupAttempt | None,
    ) -> DataFrame:
        """Return the job for a small micro-batch, whose only task encodes and writes."""
        encode = self._encode_stage(sinks, targets, 1)
        both = EncodeAndWriteTask(encode, self._write_stage(targets), _after_write(dedup, 1))
        # A stateful plan has one task for each partition of its state. `coalesce` would run all
        # of them in one task, so the rows are shuffled into one task instead.
        if self.stages.plan.is_stateful and not isinstance(out, FusedStep | PythonRows):
            return mapped(out.repartition(1), both, receipt.SCHEMA)
        return mapped(out.coalesce(1), both, receipt.SCHEMA)

    def _side_by_side(
        self, rows: PythonRows, targets: Targets, dedup: DedupAttempt | None
    ) -> Sequence[Any]:
        """Run one job whose tasks run at the same time, and exchange record batches by files."""
        tasks = rows.reader.task_count
        writers = min(tasks, len(targets.partitions))
        encode = self._encode_stage(self.stages.plan.sinks, targets, writers)
        with self._exchange(writers, tasks).opened() as exchange:
            after_write = _after_write(dedup, tasks)
            task = ExchangeTask(encode, self._write_stage(targets), exchange, after_write)
            return self.collect(rows.mapped(task, receipt.SCHEMA, barrier=True), ALL)

    def _in_two_stages(
        self,
        out: DataFrame | FusedStep | PythonRows,
        sinks: tuple[SinkSpec, ...],
        targets: Targets,
        dedup: DedupAttempt | None,
    ) -> tuple[DataFrame, Sequence[Any]]:
        """Encode the rows in one stage, and write them in another.

        Return the job that reads the rows, and the collected result. Record batches go to their
        writers by files if all tasks run on this machine, and by Spark's shuffle otherwise.
        """
        writers = self.stages.plan.writers(len(targets.partitions))
        encode, write = self._encode_stage(sinks, targets, writers), self._write_stage(targets)
        crash = self.stages.crash.of_tasks(self.batch_id)
        validators = 0 if dedup is None else dedup.validators
        task = WriteTask(write, _after_write(dedup, validators))
        if self.stages.reader.slots:
            with self._exchange(writers).opened() as exchange:
                job = mapped(out, EncodeToFilesTask(encode, exchange, crash), receipt.SCHEMA)
                self.collect(job, "read, transform, encode")
                tasks = max(writers, validators)
                numbers = self.stages.spark.range(0, tasks, 1, tasks)
                written = mapped(numbers, WriteFilesTask(task, exchange), receipt.SCHEMA)
                return job, self.collect(written, "write")
        # Not by hash, which would put two writers into one task and leave another idle. The
        # manifests (counts of encoded records) have an id of their own: its task adds them up.
        encoded = mapped(out, EncodeTask(encode, crash), SPARK_SCHEMA)
        shuffled = repartition_by_id(encoded, max(writers + 1, validators), "writer")
        ordered = shuffled.sortWithinPartitions("target", "source", "position")
        job = mapped(ordered, task, receipt.SCHEMA)
        return job, self.collect(job, ALL)

    def _exchange(self, writers: int, waiting_tasks: int = 0) -> Exchange:
        # The JVM created this private folder for the run's blocks, and removes it when the run
        # ends.
        folder = self.stages.spark.sparkContext._temp_dir  # noqa: SLF001 - PySpark has no public way
        name = f"exchange-{self.identity.producer_id}-{self.identity.epoch}"
        return Exchange.of_job(f"{folder}/{name}", writers, waiting_tasks)

    def _encode_stage(
        self, sinks: tuple[SinkSpec, ...], targets: Targets, writers: int
    ) -> EncodeStage:
        topics = self.stages.plan.source_topics
        return EncodeStage(
            sinks=sinks,
            targets=targets,
            n_writers=writers,
            record_batch_bytes_max=self.stages.client.settings.max_request_bytes,
            base_timestamp_ms=int(time.time() * 1000),
            turn=self.batch_id,
            # Spark's Arrow batches may exceed their limit by a row. With a slightly larger limit
            # here, such a batch stays one chunk and is not split in half.
            chunk_bytes_max=ARROW_BYTES_MAX * 5 // 4,
            source_topic=topics[0] if len(topics) == 1 else "",
        )

    def _write_stage(self, targets: Targets) -> WriteStage:
        client = self.stages.client
        return WriteStage(
            settings=client.settings,
            profile=client.profile,
            transactional_id=self.stages.plan.names.transactional_id,
            identity=self.identity,
            targets=targets,
            timeout_ms=int(self.stages.plan.transaction_timeout_ms * _WRITER_SHARE),
            crash=self.stages.crash.of_tasks(self.batch_id),
        )


def _after_write(dedup: DedupAttempt | None, tasks: int) -> Callable[[int], None]:
    """Return the function that each writing task calls when it has written. Without dedup it does
    nothing."""
    return nothing if dedup is None else dedup.after_write(tasks)
