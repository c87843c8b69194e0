"""Run one attempt at a micro-batch: read, transform, encode and write its records by Spark jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from eos.checkpoint.offset_log import Ranges
from eos.errors import AttemptFailedError, EosError, Recovery, about
from eos.kafka.api import Identity
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, Position
from eos.micro_batch.jobs import Jobs, is_small
from eos.micro_batch.records_read import observed, records_read, scanned
from eos.micro_batch.stages import Stages
from eos.micro_batch.task_errors import task_error
from eos.read.rejected_records import RejectedRecords
from eos.spark import dead_letters
from eos.spark.dedup_attempt import DedupAttempt
from eos.spark.dedup_run import REPEAT
from eos.spark.failure import Failure
from eos.spark.fused_step import FusedStep
from eos.spark.header_validation import HeaderValidation
from eos.spark.lookup_tables import pinned, versions
from eos.spark.steps import encodable, transformed
from eos.startup.stateful_pipeline import advance
from eos.transaction.attempt_work import AttemptFacts, AttemptWork

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Errors of a task that may mean that a source topic was deleted or recreated. After one of them,
# the topics are compared with the ledger.
_SOURCE_CHANGED = frozenset({"source_lost_records", "kafka_unknown_topic_or_partition"})


class MicroBatchWork(AttemptWork):
    """The work of one micro-batch in Spark. Its fields have the results of the latest attempt."""

    def __init__(self, stages: Stages, frame: DataFrame, batch_id: int, ranges: Ranges) -> None:
        self._stages = stages
        self._plan = stages.plan
        self._frame = frame
        self._batch_id = batch_id
        self._ranges = ranges
        self._floors: Ends = {}
        self._dedup: DedupAttempt | None = None
        self._records_read: int | None = None
        self.refused: Sequence[RejectedRecords] = ()

    def execute(self, identity: Identity, position: Position, floors: Ends) -> Sequence[Receipt]:
        jobs = Jobs(self._stages, self._batch_id, self._ranges, identity)
        self._stages.reader.begin_attempt()
        self._floors = floors
        self._dedup = None
        self.refused = ()
        if not self._plan.is_stateful:
            self._plan = pinned(self._plan, self._frame.sparkSession)
        try:
            with self._explained(position):
                found = self._tried_in_python(jobs, position, floors)
                return self._written(jobs, position, floors) if found is None else found
        except EosError as error:
            raise self._reconsidered(error) from error.__cause__

    def _tried_in_python(
        self, jobs: Jobs, position: Position, floors: Ends
    ) -> Sequence[Receipt] | None:
        """Let Python tasks write the records without the JVM, and return the receipts. Return None
        if nothing was sent, and Spark has to run the steps."""
        if not self._stages.reader.is_in_python:
            return None
        try:
            with self._explained(position):
                return self._written_in_python(jobs, position, floors)
        except EosError as error:
            if not self._stages.reader.leaves_to_spark(error, self._batch_id):
                raise
        if self._stages.dedup is not None:
            self._stages.dedup.forget_attempts()
        return None

    def _written(self, jobs: Jobs, position: Position, floors: Ends) -> Sequence[Receipt]:
        plan, spark = self._plan, self._stages.spark
        targets = self._stages.targets.targets(plan.row_topics)
        read = self._source_rows(floors)
        before = scanned(spark, plan)
        rows, out = self._encodable(read, jobs, position)
        dedup = self._dedup
        job, receipts = jobs.write_rows(out, plan.sinks, targets, dedup)
        self._records_read = records_read(spark, plan, job, read, before)
        if plan.is_stateful:  # in a stateful plan, a rejected record fails the job
            return receipts
        count = sum(receipt.records for receipt in receipts)
        self.refused = plan.decode.found(job, count, rows)
        plan.decode.require_none(self.refused, plan.names.pipeline)
        if dedup is not None:
            dead = dedup.complete(job, read, self._ranges, floors)
            self.refused = (*self.refused, *dead)
            self._records_read = dedup.records_read
            rows = dedup.accepted_and_dead(read) if dead else rows
        return (*receipts, *self._dead_letters(rows, jobs))

    def _written_in_python(self, jobs: Jobs, position: Position, floors: Ends) -> Sequence[Receipt]:
        """Let Python tasks read, process and write the records without the JVM, and return the
        receipts.

        Only dedup rejects records here: those that do not meet a rule need Spark.
        """
        run, dedup = self._stages.dedup, None
        read = partial(self._source_rows, floors)
        if run is not None:
            dedup = run.begin(read, position, jobs.collect, in_one_task=jobs.is_in_one_task)
        self._dedup = dedup
        targets = self._stages.targets.targets(self._plan.row_topics)
        rows = self._stages.reader.python_rows(
            self._frame,
            self._ranges,
            floors,
            len(targets.partitions),
            None if dedup is None else dedup.validation,
        )
        written = jobs.write_in_python(rows, targets, dedup)
        self._records_read = written.records_read
        if dedup is None:
            return written.receipts
        self.refused = dedup.complete_in_python(written.records_read, self._ranges)
        if not self.refused:
            return written.receipts
        found = dedup.accepted_and_dead(read())
        return (*written.receipts, *self._dead_letters(found, jobs))

    def _source_rows(
        self,
        floors: Ends,
        validation: HeaderValidation | None = None,
        columns: frozenset[str] | None = None,
    ) -> DataFrame:
        return self._stages.reader.frame(
            self._frame,
            self._ranges,
            floors,
            in_one_task=self._is_small,
            validation=validation,
            columns=columns,
        )

    @property
    def _is_small(self) -> bool:
        return is_small(self._plan, self._ranges)

    def _encodable(
        self, frame: DataFrame, jobs: Jobs, position: Position
    ) -> tuple[DataFrame, DataFrame | FusedStep]:
        """Return the rows that the transform steps read, and the rows (or the fused step) to
        encode. `frame` has all rows of the source."""
        plan, run, reader = self._plan, self._stages.dedup, self._stages.reader
        if run is None:
            return frame, frame if plan.is_stateful else self._of_columns(observed(frame))
        collect, in_one_task = jobs.collect, jobs.is_in_one_task
        self._dedup = dedup = run.begin(lambda: frame, position, collect, in_one_task=in_one_task)
        if dedup.accepts_all or not reader.validates:
            rows = dedup.rows(frame)
            return rows, encodable(plan, rows)
        rows = self._source_rows(self._floors, dedup.validation)
        return rows, self._of_columns(rows, dedup.validation)

    def _of_columns(
        self, rows: DataFrame, validation: HeaderValidation | None = None
    ) -> DataFrame | FusedStep:
        """Return the rows (or the fused step) to encode, from only those columns of the source that
        they need. A small micro-batch is not worth a second plan."""
        out = encodable(self._plan, rows)
        if self._is_small:
            return out
        of = out.last.frame if isinstance(out, FusedStep) else out
        columns = self._stages.reader.columns_needed(of)
        if columns is None:
            return out
        found = self._source_rows(self._floors, validation, columns)
        return encodable(self._plan, found if validation else observed(found))

    def _dead_letters(self, rows: DataFrame, jobs: Jobs) -> Sequence[Receipt]:
        """Write the rejected records to the dead letter topic by a second Spark job of the same
        attempt.

        If no record was rejected, there is no second job. The rows after the last step lack
        rejected records, so the second job reads the same offsets again. Both jobs get the same
        result for a record: rules depend on their record alone, and dedup has one verdict on it in
        an attempt. If the source loses a record between the two jobs, the counts differ, and the
        attempt fails.
        """
        dead, crash = self._plan.dead_letters, self._stages.crash
        expected = sum(each.records for each in self.refused if each.answer == "dead_letter")
        if dead is None or not expected:
            return ()
        crash.reached("dead_letters:before")
        targets = self._stages.targets.targets((dead.topic,))
        out = dead_letters.columns(rows, self._plan, len(targets.partitions))
        sink = dead_letters.sink(dead.topic, dead.codec)
        receipts = jobs.write_rows(out, (sink,), targets).receipts
        written = sum(receipt.records for receipt in receipts)
        if written != expected:
            raise AttemptFailedError(
                "source_changed_during_attempt",
                f"{expected} records were rejected, but {written} were found when they were read "
                f"again for the dead letter topic {dead.topic}",
                hint="retention or compaction may have removed source records during the attempt; "
                "the next attempt reads them again",
            )
        crash.reached("dead_letters:after")
        return receipts

    def prepare_commit(self) -> AttemptFacts:
        self._stages.targets.require_same()
        self._stages.reader.report_traces(self._batch_id)
        dedup = self._dedup
        version, counts = ("", {}) if dedup is None else dedup.commit_states()
        if dedup is not None and self._stages.tables is not None:
            counts = {**counts, REPEAT: dedup.states.origin}
        return AttemptFacts(
            refused=dead_letters.counted(self.refused),
            records_read=self._records_read,
            amounts=self._stages.reader.amounts,
            reads=versions(self._plan),
            producers=version,
            dedup=counts,
            validate_first=0 if dedup is None else dedup.validate_first,
        )

    def skip(self, position: Position) -> None:
        if self._stages.tables is not None:
            self._stages.tables.skipped(position.tables)
        if not self._plan.is_stateful:
            return
        try:
            advance(self._frame)
        except Exception as error:
            raise task_error(Failure.of(error)) from error

    def follow(self, position: Position, offset: int) -> Position:
        tables = self._stages.tables
        if tables is None:
            return position
        tables.is_behind = True
        self._stages.spark.sparkContext.setJobDescription(
            f"{self._plan.names.pipeline}: micro-batch {self._batch_id}: Delta tables"
        )
        rows = self._source_rows(self._floors)
        if self._is_small:
            rows = rows.coalesce(1)
        if self._dedup is not None:
            rows = self._dedup.accepted_again(rows)
        rows = transformed(self._plan, rows)
        return replace(position, tables=tables.follow(rows, offset, position.tables))

    @contextmanager
    def _explained(self, position: Position) -> Iterator[None]:
        """Raise the project's error in place of an exception of Spark, and the error with the
        remedy if the source changed."""
        try:
            yield
        except EosError as error:  # of the driver's own work
            better = self._of_source(error, position)
            if better is error:
                raise
            raise better from error
        except Exception as error:
            raise self._error_of(error, position) from error

    def _error_of(self, error: Exception, position: Position) -> EosError:
        """Return the project's error for an exception of Spark."""
        failure, name = Failure.of(error), self._plan.names.pipeline
        refused = self._plan.decode.raised(failure.raised)
        if refused is not None:
            try:
                self._plan.decode.require_none((refused,), name)
            except EosError as better:
                return better
        found = self._of_source(task_error(failure), position)
        # The log line of a retried attempt names its micro-batch. Only a final error needs the
        # pipeline's name.
        is_final = found.recovery is Recovery.STOP
        return about(name, found) if is_final else found

    def _of_source(self, error: EosError, position: Position) -> EosError:
        """Return the error with the remedy if the source changed, otherwise the error itself."""
        if error.code in _SOURCE_CHANGED:
            # For a new partition, Spark starts at offset 0.
            starts = {tp: self._ranges.starts.get(tp, 0) for tp in self._ranges.ends}
            try:
                self._stages.source.require_unchanged(position, starts)
            except EosError as better:
                return better
        return error

    def _reconsidered(self, error: EosError) -> EosError:
        """Return the error to raise for a failed attempt.

        A final error is replaced by one that is retried in three cases: the Arrow reader can't read
        the records, the size limit of a target topic changed, or dedup had not validated all
        records before they were written.
        """
        if self._stages.reader.falls_back(error):
            return AttemptFailedError(error.code, error.message, hint=error.hint)
        error = self._stages.targets.explained(error)
        return error if self._dedup is None else self._dedup.retriable(error)
