"""Write a DataFrame that is not streaming, once for each id of a run.

The run is one micro-batch in one transaction, and its id is in the ledger record of that
transaction. So a repeated run finds its id, and writes nothing. A micro-batch of a stream is
recognized by Spark's ids instead.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eos.audit.updater import audit_of, close
from eos.checkpoint.files import files_for
from eos.checkpoint.offset_log import Ranges
from eos.deadline import Deadline
from eos.errors import AttemptFailedError, UsageError
from eos.kafka.client import KafkaClient
from eos.ledger.ranges import PlannedBatch
from eos.ledger.record import BATCH_QUERY, RUN_ID_MAX
from eos.micro_batch.source_reader import SourceReader
from eos.micro_batch.stages import Stages
from eos.micro_batch.target_guard import TargetGuard
from eos.micro_batch.work import MicroBatchWork
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.plan.plan import Plan
from eos.plan.reader import ReaderChoice
from eos.plan.security import naming_principal
from eos.run.broker_outage import watching_brokers
from eos.run.host import Host
from eos.run.observing import lineage_observers, observing
from eos.run.prepared import PreparedRun, RunOptions
from eos.run.shutdown import Stopping
from eos.spark.adopted_session import in_session
from eos.spark.steps import projected
from eos.startup.acquire import acquire, still_ours
from eos.startup.conditional_puts import require_conditional_puts
from eos.startup.registered_schemas import with_registry
from eos.startup.resume_position import resume_position, with_targets
from eos.startup.source_state import LiveSource
from eos.startup.spark_plan import require_repeatable
from eos.transaction.clean_end import note_clean_end
from eos.transaction.micro_batch import MicroBatches

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_START_MS_MAX = 120_000
_CANCEL_S = 0.5
_REASON = "the rows come from a DataFrame of the job"


def run_batch(prepared: PreparedRun, options: RunOptions, host: Host, run_id: str) -> bool:
    """Write the job's DataFrame, unless the ledger has a run of this id. Return whether it was
    written now.

    Raise AttemptFailedError if a stop was requested before the commit."""
    planned = replace(prepared.planned, run_id=host.lock.run_id)
    profile = prepared.profile
    name, parts = prepared.name, (profile.metrics, profile.opentelemetry)
    with closing(Bus()) as bus, naming_principal(planned.security):
        planned = with_registry(planned, profile.registry)
        spark = host.open_session()
        bus.subscribe(Console(pipeline=name))
        assert host.shared is not None, "a Python job's session is the user's"
        bounded = replace(planned, trigger_every_ms=None)
        observers = [*prepared.observers, *lineage_observers(profile, bounded)]
        bus.subscribe(host.shared.note)
        with (
            closing(KafkaClient(planned.kafka)) as client,
            observing(name, bus, observers, *parts),
            watching_brokers([client], bus),
        ):
            return _BatchRun(prepared, options, host, spark, client, bus).run(planned, run_id)


@dataclass(frozen=True, slots=True)
class _BatchRun:
    prepared: PreparedRun
    options: RunOptions
    host: Host
    spark: SparkSession
    client: KafkaClient
    bus: Bus

    def run(self, planned: Plan, run_id: str) -> bool:
        deadline = Deadline.after_ms(_START_MS_MAX)
        self.client.agree_on_profile(deadline)
        parallelism = self.spark.sparkContext.defaultParallelism
        planned = with_targets(planned, self.client, parallelism, deadline)
        files, audit = files_for(planned.names.checkpoints, self.spark), self.prepared.profile.audit
        require_conditional_puts(planned, files, has_audit=audit.transactions)
        frame = self.prepared.frame
        assert frame is not None, "a batch run has a DataFrame"
        # Before the fence: columns that don't fit the sinks must not disturb another instance.
        rows = projected(planned, in_session(frame, self.spark))
        require_repeatable(rows)
        source = LiveSource(planned, self.client)
        acquired = acquire(
            planned,
            self.client,
            self.prepared.crash,
            deadline,
            is_forced=self.options.take_over,
            examine=lambda last: _require_batches(
                planned.names.pipeline, "" if last is None else last.position.query_id
            ),
        )
        with still_ours(acquired.coordinator, acquired.ledger):
            position = resume_position(planned, source, acquired.last, self.bus, deadline)
        table = audit_of(self.prepared.profile, planned, self.client, self.bus)
        batches = acquired.batches(position, source, self.bus)
        is_new = run_id not in position.runs
        try:
            batches.note("start", position)
            table.start()
            if is_new:
                with _tagged(self.spark, self.host.stopping, batches):
                    self._write(planned, source, batches, rows, run_id)
            # Also of a repeated run: the one that committed may not have ended cleanly.
            note_clean_end(batches, self.bus, is_at_rest=True)
        finally:
            batches.group.close()
            close(table, batches)
        state = "is committed" if is_new else "was committed before"
        self.bus.emit(events.Stopped(planned.names.pipeline, f"the run {run_id!r} {state}"))
        return is_new

    def _write(
        self,
        planned: Plan,
        source: LiveSource,
        batches: MicroBatches,
        rows: DataFrame,
        run_id: str,
    ) -> None:
        choice = ReaderChoice("spark", _REASON)
        reader = SourceReader(planned, choice, self.client, self.spark, self.bus, shares_spark=True)
        targets = TargetGuard(planned, self.client)
        stages = Stages(
            planned, self.client, self.spark, source, reader, targets, self.prepared.crash
        )
        number, none = batches.position.batch_id + 1, Ranges({}, {})
        step = PlannedBatch(
            BATCH_QUERY, number, {}, {}, is_stateful=True, is_opaque=True, run_id=run_id
        )
        batches.run(step, MicroBatchWork(stages, rows, number, none))


@contextmanager
def _tagged(spark: SparkSession, stopping: Stopping, batches: MicroBatches) -> Iterator[None]:
    """Within the context, let a request to stop cancel this thread's Spark jobs."""
    context = spark.sparkContext
    tag = f"eos-batch-{uuid.uuid4().hex}"
    jobs = TaggedJobs(context, tag)
    context.addJobTag(tag)
    try:
        with stopping.attached(jobs, batches):
            yield
    except AttemptFailedError as error:
        if not stopping.is_requested:
            raise
        raise AttemptFailedError(
            "stop_requested",
            "the run was asked to stop",
            hint="run it again with the same id, which writes nothing that is committed already",
        ) from error
    finally:
        jobs.have_ended.set()
        context.removeJobTag(tag)


@dataclass(frozen=True, slots=True)
class TaggedJobs:
    """The Spark jobs with a tag."""

    context: SparkContext
    tag: str
    have_ended: threading.Event = field(default_factory=threading.Event)

    def stop(self) -> None:
        """Cancel them until the run has ended: between two jobs there is nothing to cancel."""
        while not self.have_ended.is_set():
            self.context.cancelJobsWithTag(self.tag)
            self.have_ended.wait(_CANCEL_S)


def _require_batches(pipeline: str, query_id: str) -> None:
    """Raise UsageError if the pipeline is a streaming one: its ledger has a query of Spark."""
    if query_id not in ("", BATCH_QUERY):
        raise UsageError(
            "job_kind_changed",
            f"{pipeline} is the name of a streaming job: its ledger has micro-batches of the query "
            f"{query_id}",
            hint="give the batch job a name of its own",
        )


# Half of a pair. Python makes one of each byte in a file name that is no text. With it, a ledger
# record would be no JSON that a reader accepts.
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def require_run_id(run_id: str) -> None:
    """Raise UsageError unless the text can be the id of a run."""
    is_text = isinstance(run_id, str) and not _SURROGATE.search(run_id)
    if not is_text or not 0 < len(run_id) <= RUN_ID_MAX:
        raise UsageError(
            "run_id_invalid",
            f"the id of a run is {run_id!r:.120}; expected a text of 1 to {RUN_ID_MAX} characters",
            hint='use what makes the run unique, such as its day: `run(id="2026-11-23")`',
        )
