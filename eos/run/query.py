"""The only place where the stages meet: source, transform, encode, write, once per attempt."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eos.deadline import Deadline
from eos.encode.stage import SPARK_SCHEMA, EncodeStage
from eos.encode.targets import Targets
from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, about, crossed
from eos.faults import CrashPlan
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.read.decode import NONE
from eos.read.offset_log import Checkpoint, Ranges
from eos.run.audit import NO_AUDIT, Audit
from eos.run.columns import sink_columns
from eos.run.refusal import source_refusal
from eos.run.session import ARROW_BYTES_MAX
from eos.run.source import LiveSource
from eos.run.tasks import EncodeAndWriteTask, EncodeTask, WriteStage, WriteTask
from eos.run.topics import existing_topics
from eos.run.watch import collected
from eos.transaction import receipt
from eos.transaction.ledger_record import Ends
from eos.transaction.micro_batch import STEP_TIMEOUT_MS, MicroBatches
from eos.transaction.port import Identity
from eos.transaction.ranges import Step
from eos.transaction.receipt import Receipt
from eos.transaction.wire import TopicInfo, Wire
from eos.transform.check import check_stateless
from eos.transform.functions import apply
from eos.transform.unstable import unstable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A micro-batch that its offsets bound to fewer records than this runs as one task, without a
# shuffle: below it a second task costs more time than it saves.
ONE_TASK_RECORDS_MAX = 50_000
_NOT_PYTHONS = ("at ", "File ", "org.", ": org.", "Caused by", "py4j.")
_DATA_LOSS = ("OffsetOutOfRange", "failOnDataLoss", "data loss", "DATA_LOSS")
# What an executor lacks, and may have when the next attempt runs on another one.
_SETUP = {
    "PYTHON_VERSION_MISMATCH": "PYSPARK_PYTHON names the executors' Python: docs/clusters.md",
    "Cannot run program": "PYSPARK_PYTHON names the executors' Python: docs/clusters.md",
    "ModuleNotFoundError": "what a function imports has to travel to the executors, too: "
    "docs/clusters.md",
}
# What a writer may take of the transaction's time; the rest is for record, offsets and end.
_WRITER_SHARE = 0.8


def check(plan: Plan, stream: DataFrame, bus: Bus) -> None:
    """Refuses, before anything is taken or run, what Spark or this release would refuse as a
    stream. Sends nothing to Kafka."""
    rows = transformed(plan, stream)
    check_stateless(rows)
    out = sink_columns(rows, plan)
    if plan.outputs.columns:
        check_stateless(out)  # the sinks' own expressions
    found = unstable(out)
    if found:
        bus.emit(
            events.Warned(
                f"the transforms use {', '.join(found)}: a micro-batch that is redone gets "
                "other values"
            )
        )


def transformed(plan: Plan, frame: DataFrame) -> DataFrame:
    return apply(plan.decode.apply(frame), plan.transforms)


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
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._plan = plan
        self._wire = wire
        self.checkpoint = checkpoint
        self._micro_batches = micro_batches
        micro_batches.require_targets = self._require_same_targets
        self.source = source
        self._crash = crash
        self._audit = audit
        self._query_id = ""
        self._target_ids: dict[str, str] = {}
        self._dropped = NONE  # of the attempt that was executed last
        self.error: Exception | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            ranges = self._ranges(batch_id)
            step = Step(self._query_id, batch_id, ranges.starts, ranges.ends)
            self._dropped = NONE
            self._audit.require()
            self._micro_batches.run(step, self._execution(frame, batch_id, ranges))
            self._audit.committed()
            self._tell_dropped(batch_id)
        except Exception as error:
            self.error = self.error or error
            raise

    def _ranges(self, batch_id: int) -> Ranges:
        try:
            self._query_id = self._query_id or self.checkpoint.query_id()
            return self.checkpoint.ranges(batch_id)
        except EosError as error:
            raise about(self._plan.names.pipeline, error) from error

    def _require_readable(
        self, job: DataFrame, receipts: Sequence[Receipt], rows: DataFrame
    ) -> None:
        decode = self._plan.decode
        self._dropped = decode.found(job, sum(receipt.records for receipt in receipts), rows)
        decode.require_none(self._dropped, self._plan.names.pipeline)

    def _tell_dropped(self, batch_id: int) -> None:
        """After the commit: what a failed attempt left out is left out again by the next."""
        dropped = self._dropped
        if dropped.records:
            self._micro_batches.bus.emit(
                events.RecordsDropped(
                    batch_id, dropped.records, dropped.topic, dropped.partition, dropped.offset
                )
            )

    def _execution(
        self, frame: DataFrame, batch_id: int, ranges: Ranges
    ) -> Callable[[Identity, Ends], Sequence[Receipt]]:
        def execute(identity: Identity, floors: Ends) -> Sequence[Receipt]:
            targets = self._targets()
            try:
                rows = _above(frame, floors)
                out = transformed(self._plan, rows)
                job = self._job(sink_columns(out, self._plan), batch_id, ranges, targets, identity)
                receipts = receipt.check(self._collected(job, identity), targets)
                self._require_readable(job, receipts, rows)
                return receipts
            except EosError:
                raise
            except Exception as error:
                told = _task_error(error)
                if told.fields.get("case") == "source_lost_records":
                    # The same with numbers. Where a partition is new, Spark begins at 0.
                    begun = {tp: ranges.starts.get(tp, 0) for tp in ranges.ends}
                    self.source.require_there(begun)
                raise told from error

        return execute

    def _collected(self, job: DataFrame, identity: Identity) -> Sequence[Any]:
        names, timeout_ms = self._plan.names, self._plan.transaction_timeout_ms
        return collected(job, self._wire, names.transactional_id, identity, timeout_ms)

    def _job(
        self,
        out: DataFrame,
        batch_id: int,
        ranges: Ranges,
        targets: Targets,
        identity: Identity,
    ) -> DataFrame:
        writers = self._plan.writers(len(targets.partitions))
        encode = EncodeStage(
            sinks=self._plan.sinks,
            targets=targets,
            n_writers=writers,
            record_batch_bytes_max=self._wire.settings.max_request_bytes,
            base_timestamp_ms=int(time.time() * 1000),
            turn=batch_id,
            # A little more than Spark's Arrow batches, which may exceed their limit by a row: one
            # of them is a chunk then, and not two halves.
            chunk_bytes_max=ARROW_BYTES_MAX * 5 // 4,
        )
        crash = self._crash.of_tasks(batch_id)
        write = WriteStage(
            settings=self._wire.settings,
            profile=self._wire.profile,
            transactional_id=self._plan.names.transactional_id,
            identity=identity,
            targets=targets,
            timeout_ms=int(self._plan.transaction_timeout_ms * _WRITER_SHARE),
            crash=crash,
        )
        if ranges.records_max <= ONE_TASK_RECORDS_MAX:
            both = EncodeAndWriteTask(encode, write)
            return out.coalesce(1).mapInArrow(both, receipt.SCHEMA)
        # repartitionById, since a hash would put two writers into one task and leave another
        # idle. The manifests go to one id more: their task sums up what was planned.
        encoded = out.mapInArrow(EncodeTask(encode, crash), SPARK_SCHEMA)
        shuffled = encoded.repartitionById(writers + 1, "writer")
        ordered = shuffled.sortWithinPartitions("target", "source", "position")
        return ordered.mapInArrow(WriteTask(write), receipt.SCHEMA)

    def _targets(self) -> Targets:
        """The target partitions as they are now, frozen for this attempt."""
        topics = self._require_same_targets()
        limits = self._plan.message_bytes_max
        return Targets.of(
            {name: (topics[name].partitions, limits[name]) for name in self._plan.sink_topics}
        )

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


def _above(frame: DataFrame, floors: Ends) -> DataFrame:
    """Without the rows that the ledger says are committed."""
    for (topic, partition), floor in sorted(floors.items()):
        named = topic.replace("\\", "\\\\").replace("'", "\\'")
        frame = frame.filter(
            f"NOT (topic = '{named}' AND partition = {partition} AND offset < {floor})"
        )
    return frame


def _task_error(error: Exception) -> EosError:
    """What a task raised, if it was one of ours; anything else is worth another attempt."""
    found = crossed(str(error))
    if found is not None:
        return found
    final = data_loss(error) or source_refusal(error)
    if final is not None:
        return final
    words = _last_words(str(error))
    hint = next((hint for mark, hint in _SETUP.items() if mark in words), "")
    return AttemptFailedError(f"the Spark job failed: {words}", hint=hint)


def data_loss(error: Exception) -> EosError | None:
    """Spark's refusal to skip source records that are gone (failOnDataLoss), in our words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not any(mark in line for line in lines for mark in _DATA_LOSS):
        return None
    telling = next((line for line in lines if "offset" in line.lower()), lines[0])
    return PromiseBrokenError(
        f"the source lost records before they were read: {telling[:500]}",
        hint="retention deleted them while the pipeline was down or behind, or somebody did; "
        "nothing brings them back, and nothing was skipped",
        case="source_lost_records",
    )


def _last_words(text: str) -> str:
    """The line of a Python traceback (inside Spark's words) that names the cause; or how the first
    task was lost, if what died could leave no traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if ("Error" in line or "Exception" in line) and ": " in line]
    python = [line for line in named if not line.startswith(_NOT_PYTHONS)]
    if not python:  # what Spark would have us consider is no part of it
        pattern = r"most recent failure(?: reason)?:\s*(.+?)(?: Consider setting .*)?$"
        lost = re.search(pattern, text, re.IGNORECASE | re.MULTILINE)
        named = [lost.group(1)] if lost else named
    return (python or named or lines or ["no message"])[-1][:500]
