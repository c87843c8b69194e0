"""The only place where the stages meet: source, transform, encode, write, once per attempt."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from eos.deadline import Deadline
from eos.encode.stage import SPARK_SCHEMA, EncodeStage, SinkSpec
from eos.encode.targets import Targets
from eos.errors import (
    AttemptFailedError,
    EosError,
    PromiseBrokenError,
    Recovery,
    TransformError,
    UnavailableError,
    about,
)
from eos.faults import CrashPlan
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.read.decode import Refused
from eos.read.offset_log import Checkpoint, Ranges
from eos.read.spark_plan import require_planned
from eos.run import dead_letters
from eos.run.audit import NO_AUDIT, Audit
from eos.run.cautions import cautions
from eos.run.columns import sink_columns
from eos.run.dedup import Deduplicating
from eos.run.dedup_rows import as_stream
from eos.run.failure import Failure
from eos.run.fused import Fused
from eos.run.judged import Judged
from eos.run.lake import Lake
from eos.run.limits import TargetLimits
from eos.run.lookup import pinned, versions
from eos.run.rules import require_lasting
from eos.run.session import ARROW_BYTES_MAX
from eos.run.source import LiveSource, above
from eos.run.state import advance, with_state
from eos.run.steps import encodable, mapped, transformed
from eos.run.task_error import task_error
from eos.run.tasks import EncodeAndWriteTask, EncodeTask, WriteStage, WriteTask, nothing
from eos.run.topics import existing_topics
from eos.run.visible import observed, records_read, scanned
from eos.run.watch import collected
from eos.transaction import receipt
from eos.transaction.ledger_record import Ends
from eos.transaction.micro_batch import STEP_TIMEOUT_MS, MicroBatches
from eos.transaction.port import Identity
from eos.transaction.ranges import Step
from eos.transaction.receipt import Receipt
from eos.transaction.wire import TopicInfo, Wire
from eos.transform.check import check_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A micro-batch that its offsets bound to fewer records than this runs as one task, without a
# shuffle: below it a second task costs more time than it saves.
ONE_TASK_RECORDS_MAX = 50_000
# What a writer may take of the transaction's time; the rest is for record, offsets and end.
_WRITER_SHARE = 0.8


def check(plan: Plan, stream: DataFrame, bus: Bus) -> Plan:
    """Refuses, before anything is taken or run, what Spark or this release would refuse as a
    stream. Sends nothing to Kafka. Returns the plan with what was found out: does it keep state."""
    stream = as_stream(stream, plan.dedup)
    rows = transformed(plan, stream)
    state = check_stream(rows, plan.output_mode)
    out = sink_columns(rows, plan)
    if plan.outputs.columns and check_stream(out, plan.output_mode).operators != state.operators:
        raise TransformError(
            "a sink's expressions group rows, or leave duplicates out",
            hint="a sink's expressions make something of one row at a time; a step may group",
        )
    require_lasting(plan, stream)
    for message in cautions(plan, out):
        bus.emit(events.Warned(message))
    return with_state(plan, state, bus)


@dataclass(frozen=True, slots=True)
class _Part:
    """What the jobs of one attempt have in common."""

    batch_id: int
    ranges: Ranges
    identity: Identity
    writers_deadline: Deadline


class PipelineQuery:
    """Called by Spark for each micro-batch. Keeps the first error, since Spark keeps its text."""

    def __init__(
        self,
        plan: Plan,
        wire: Wire,
        checkpoint: Checkpoint,
        micro_batches: MicroBatches,
        source: LiveSource,
        crash: CrashPlan,
        spark: SparkSession,
        audit: Audit = NO_AUDIT,
        dedup: Deduplicating | None = None,
        lake: Lake | None = None,
    ) -> None:
        self._spark = spark  # where the query was started: each frame has a session of its own
        self._plan = plan
        self._wire = wire
        self._limits = TargetLimits(wire, plan.message_bytes_max)
        self.checkpoint = checkpoint
        self._micro_batches = micro_batches
        micro_batches.require_targets = self._require_same_targets
        micro_batches.refused = lambda: dead_letters.counted(self._refused)
        self.source = source
        self._dedup = dedup
        if dedup is not None:
            micro_batches.producers = dedup.producers
            micro_batches.validate_first = dedup.validate_first
        self._crash = crash
        self._audit = audit
        self._lake = lake
        micro_batches.reads = lambda: versions(self._plan)
        micro_batches.records_read = lambda: self._records_read
        self._read: tuple[DataFrame, Ends] | None = None  # by the attempt executed last
        self._query_id = ""
        self._target_ids: dict[str, str] = {}
        self._records_read: int | None = None
        self._refused: Sequence[Refused] = ()  # by the attempt that was executed last
        self.refused: Counter[tuple[str, str]] = Counter()  # by what was committed
        self.error: Exception | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            ranges = self._ranges(batch_id)
            self._require_planned(batch_id, ranges)
            is_stateful = self._plan.is_stateful
            step = Step(self._query_id, batch_id, ranges.starts, ranges.ends, is_stateful)
            self._refused = ()
            self._audit.require()
            if self._lake is not None:
                self._lake.require_even()
            if self._dedup is not None:
                self._dedup.next_micro_batch()
            execution = self._execution(frame, batch_id, ranges)
            self._micro_batches.run(step, execution, lambda: self._skipped(frame), self._follow)
            self._audit.committed()
            self._tell_refused(batch_id)
            if self._dedup is not None:
                self._dedup.committed(batch_id, self._micro_batches.bus)
        except Exception as error:
            self.error = self.error or error
            raise

    def _ranges(self, batch_id: int) -> Ranges:
        try:
            self._query_id = self._query_id or self.checkpoint.query_id()
            return self.checkpoint.ranges(batch_id)
        except EosError as error:
            raise about(self._plan.names.pipeline, error) from error

    def _require_planned(self, batch_id: int, found: Ranges) -> None:
        name, location = self._plan.names.pipeline, self.checkpoint.location
        try:
            require_planned(self._spark, name, location, batch_id, found)
        except UnavailableError:
            self._micro_batches.require_owner()  # else a start again would fence who replaced us
            raise

    def _tell_refused(self, batch_id: int) -> None:
        """After the commit: what a failed attempt refused is refused again by the next."""
        for each in self._refused:
            self.refused[each.rule, each.answer] += each.records
            self._micro_batches.bus.emit(events.RecordsRefused(batch_id, *astuple(each)))

    def _execution(
        self, frame: DataFrame, batch_id: int, ranges: Ranges
    ) -> Callable[[Identity, Ends], Sequence[Receipt]]:
        def execute(identity: Identity, floors: Ends) -> Sequence[Receipt]:
            is_small = ranges.records_max <= ONE_TASK_RECORDS_MAX
            if self._lake is not None:
                self._read = (frame.coalesce(1) if is_small else frame), floors
            self._plan = pinned(self._plan, frame.sparkSession)
            part = _Part(batch_id, ranges, identity, self._writers_deadline())
            try:
                read = above(frame, floors)
                before = scanned(self._spark, self._plan)
                rows, out = self._encodable(read, part)
                targets = self._targets(self._plan.row_topics)
                job = self._job(out, self._plan.sinks, targets, part)
                receipts = receipt.check(self._collected(job, part), targets)
                self._records_read = records_read(self._spark, self._plan, job, read, before)
                if self._plan.is_stateful:  # what it can't take, the plan itself refuses
                    return receipts
                count = sum(receipt.records for receipt in receipts)
                self._refused = self._plan.decode.found(job, count, rows)
                self._plan.decode.require_none(self._refused, self._plan.names.pipeline)
                again = rows
                if self._dedup is not None:
                    dead = self._dedup.judge_all(job, read, ranges, floors)
                    self._refused = (*self._refused, *dead)
                    self._records_read = self._dedup.records_read
                    again = self._dedup.refused(read) if dead else rows
                return (*receipts, *self._dead_letters(again, part))
            except EosError as error:
                raise self._doubted(error) from error.__cause__
            except Exception as error:
                raise self._doubted(self._told(error, ranges)) from error

        return execute

    def _told(self, error: Exception, ranges: Ranges) -> EosError:
        """What Spark raised, in our words."""
        failure = Failure.of(error)
        refused = self._plan.decode.raised(failure.raised)
        told = task_error(failure)
        try:
            if refused is not None:
                self._plan.decode.require_none((refused,), self._plan.names.pipeline)
            if told.fields.get("case") == "source_lost_records":
                # The same with numbers. Where a partition is new, Spark begins at 0.
                starts = {tp: ranges.starts.get(tp, 0) for tp in ranges.ends}
                self.source.require_unchanged(self._micro_batches.position, starts)
        except EosError as better:
            return better
        # An attempt that is redone is a line that names the micro-batch.
        is_final = told.recovery is Recovery.STOP
        return about(self._plan.names.pipeline, told) if is_final else told

    def _doubted(self, error: EosError) -> EosError:
        error = self._limits.explained(error)
        return error if self._dedup is None else self._dedup.doubted(error)

    def _encodable(
        self, frame: DataFrame, part: _Part
    ) -> tuple[DataFrame, DataFrame | Fused | Judged]:
        """The rows that the steps see, and what is to be encoded."""
        if self._dedup is None:
            if self._plan.is_stateful:
                return frame, frame
            return frame, encodable(self._plan, observed(frame))
        self._dedup.begin(
            frame,
            self._micro_batches.position,
            lambda job: self._collected(job, part),
            in_one_task=part.ranges.records_max <= ONE_TASK_RECORDS_MAX,
        )
        short = self._dedup.in_one_pass(self._plan, frame)
        if short is not None:
            return frame, short  # such a plan has no step, and refuses no row
        rows = self._dedup.rows(frame)
        return rows, encodable(self._plan, rows)

    def _skipped(self, frame: DataFrame) -> None:
        """The micro-batch is committed, but Spark has not noted it yet."""
        if self._lake is not None:
            self._lake.skipped(self._micro_batches.position.tables)
        if not self._plan.is_stateful:
            return
        try:
            advance(frame)
        except Exception as error:
            raise task_error(Failure.of(error)) from error

    def _follow(self, offset: int) -> None:
        """The transaction has committed: the Delta tables, from an evaluation of their own."""
        if self._lake is None:
            return
        self._lake.is_behind = True
        assert self._read is not None, "an attempt was executed"
        made, batches = transformed(self._plan, above(*self._read)), self._micro_batches
        found = self._lake.follow(made, offset, batches.position.tables)
        batches.position = replace(batches.position, tables=found)

    def _dead_letters(self, rows: DataFrame, part: _Part) -> Sequence[Receipt]:
        """Written by a second job of the same attempt, where the first one counted some: the rows
        of the last step don't carry them, and those that are taken cost nothing for them.

        Both jobs ask the same conditions of the same offsets, and none of them may depend on
        anything else; dedup has one verdict on a record in an attempt. Where the source lost a
        record between them, the counts differ.
        """
        dead = self._plan.dead_letters
        expected = sum(each.records for each in self._refused if each.answer == "dead_letter")
        if dead is None or not expected:
            return ()
        self._crash.reached("dead_letters:before")
        targets = self._targets((dead.topic,))
        out = dead_letters.columns(rows, self._plan, len(targets.partitions))
        sink = dead_letters.sink(dead.topic, dead.codec)
        job = self._job(out, (sink,), targets, part)
        receipts = receipt.check(self._collected(job, part), targets)
        written = sum(receipt.records for receipt in receipts)
        if written != expected:
            raise AttemptFailedError(
                f"{expected} records were refused, {written} of them were found again for "
                f"{dead.topic}",
                hint="did the source lose records meanwhile, by retention or compaction? They are "
                "read again by the next attempt",
            )
        self._crash.reached("dead_letters:after")
        return receipts

    def _writers_deadline(self) -> Deadline:
        return Deadline.after_ms(self._plan.transaction_timeout_ms * _WRITER_SHARE)

    def _collected(self, job: DataFrame, part: _Part) -> Sequence[Any]:
        names, timeout_ms = self._plan.names, self._plan.transaction_timeout_ms
        return collected(job, self._wire, names.transactional_id, part.identity, timeout_ms)

    def _job(
        self,
        out: DataFrame | Fused | Judged,
        sinks: tuple[SinkSpec, ...],
        targets: Targets,
        part: _Part,
    ) -> DataFrame:
        writers = self._plan.writers(len(targets.partitions))
        encode = EncodeStage(
            sinks=sinks,
            targets=targets,
            n_writers=writers,
            record_batch_bytes_max=self._wire.settings.max_request_bytes,
            base_timestamp_ms=int(time.time() * 1000),
            turn=part.batch_id,
            # A little more than Spark's Arrow batches, which may exceed their limit by a row: one
            # of them is a chunk then, and not two halves.
            chunk_bytes_max=ARROW_BYTES_MAX * 5 // 4,
            source_topic=topics[0] if len(topics := self._plan.source_topics) == 1 else "",
        )
        crash = self._crash.of_tasks(part.batch_id)
        write = WriteStage(
            settings=self._wire.settings,
            profile=self._wire.profile,
            transactional_id=self._plan.names.transactional_id,
            identity=part.identity,
            targets=targets,
            timeout_ms=int(part.writers_deadline.left_ms),
            crash=crash,
        )
        if part.ranges.records_max <= ONE_TASK_RECORDS_MAX:
            both = EncodeAndWriteTask(encode, write, self._behind(1))
            # The tasks that keep state are as many as its partitions.
            if self._plan.is_stateful and not isinstance(out, Fused | Judged):
                return mapped(out.repartition(1), both, receipt.SCHEMA)
            return mapped(out.coalesce(1), both, receipt.SCHEMA)
        # repartitionById, since a hash would put two writers into one task and leave another
        # idle. The manifests go to one id more: their task sums up what was planned.
        encoded = mapped(out, EncodeTask(encode, crash), SPARK_SCHEMA)
        judges = 0 if self._dedup is None else self._dedup.judges
        shuffled = encoded.repartitionById(max(writers + 1, judges), "writer")
        ordered = shuffled.sortWithinPartitions("target", "source", "position")
        return mapped(ordered, WriteTask(write, self._behind(judges)), receipt.SCHEMA)

    def _behind(self, tasks: int) -> Callable[[int], None]:
        return nothing if self._dedup is None else self._dedup.behind(tasks)

    def _targets(self, names: Iterable[str]) -> Targets:
        """The partitions of targets as they are now, frozen for this attempt."""
        topics = self._require_same_targets()
        of = self._limits.of
        return Targets.of({name: (topics[name].partitions, of(name)) for name in names})

    def _require_same_targets(self) -> Mapping[str, TopicInfo]:
        """A target that is made anew takes acknowledged records with it, and the broker commits
        the rest without a word. What is deleted between this look and the commit is told by the
        next micro-batch."""
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        topics = existing_topics(
            self._wire,
            self._plan.sink_topics,
            deadline,
            what="target",
            missing=PromiseBrokenError,
            hint="it was there at the start: create it again, and start again",
            pipeline=self._plan.names.pipeline,
        )
        for topic, info in topics.items():
            before = self._target_ids.setdefault(topic, info.topic_id)
            if before != info.topic_id:
                name = self._plan.names.pipeline
                raise PromiseBrokenError(
                    f"{name}: the target topic {topic!r} was deleted and created again while the "
                    f"pipeline ran (its id was {before}, and is {info.topic_id}): what was written "
                    "to it before is gone",
                    hint="start again to go on with the new topic; `eos recover "
                    f"{name} --rewind-to` an earlier record writes what came after it again",
                    case="target_recreated",
                    topic=topic,
                    pipeline=name,
                )
        return topics
