"""Write a DataFrame that is not streaming, once for each id of a run.

The run is one micro-batch in one transaction, and its id is in the ledger record of that
transaction. So a repeated run finds its id, and writes nothing. A micro-batch of a stream is
recognized by Spark's ids instead.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.audit.updater import audit_of, close
from eos.checkpoint.offset_log import Ranges
from eos.deadline import Deadline
from eos.errors import UsageError
from eos.kafka.client import KafkaClient
from eos.ledger.ranges import PlannedBatch
from eos.ledger.record import RUN_ID_MAX
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.plan.plan import Plan
from eos.plan.reader import ReaderChoice
from eos.plan.security import naming_principal
from eos.run.attempt import MicroBatchWork
from eos.run.broker_outage import watching_brokers
from eos.run.host import Host
from eos.run.observing import observing
from eos.run.prepared import PreparedRun, RunOptions
from eos.run.source_reader import SourceReader
from eos.run.stages import Stages
from eos.run.target_guard import TargetGuard
from eos.spark.adopted_session import in_session
from eos.spark.steps import projected
from eos.startup.acquire import acquire, still_ours
from eos.startup.registered_schemas import with_registry
from eos.startup.resume_position import resume_position, with_targets
from eos.startup.source_state import LiveSource
from eos.transaction.clean_end import note_clean_end
from eos.transaction.micro_batch import MicroBatches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_START_MS_MAX = 120_000
_QUERY = "batch"  # stands for Spark's query id in ledger records of these runs
_REASON = "the rows come from a DataFrame of the job"


def run_batch(prepared: PreparedRun, options: RunOptions, host: Host, run_id: str) -> bool:
    """Write the job's DataFrame, unless the ledger has a run of this id. Return whether it was
    written now."""
    planned, profile = prepared.planned, prepared.profile
    name, parts = prepared.name, (profile.metrics, profile.opentelemetry)
    with closing(Bus()) as bus, naming_principal(planned.security):
        planned = with_registry(planned, profile.registry)
        spark = host.open_session()
        bus.subscribe(Console(pipeline=name))
        assert host.shared is not None, "a Python job's session is the user's"
        bus.subscribe(host.shared.note)
        with (
            closing(KafkaClient(planned.kafka)) as client,
            observing(name, bus, prepared.observers, *parts),
            watching_brokers(client, bus),
        ):
            return _BatchRun(prepared, options, spark, client, bus).run(planned, run_id)


@dataclass(frozen=True, slots=True)
class _BatchRun:
    prepared: PreparedRun
    options: RunOptions
    spark: SparkSession
    client: KafkaClient
    bus: Bus

    def run(self, planned: Plan, run_id: str) -> bool:
        deadline = Deadline.after_ms(_START_MS_MAX)
        self.client.agree_on_profile(deadline)
        parallelism = self.spark.sparkContext.defaultParallelism
        planned = with_targets(planned, self.client, parallelism, deadline)
        frame = self.prepared.frame
        assert frame is not None, "a batch run has a DataFrame"
        # Before the fence: columns that don't fit the sinks must not disturb another instance.
        rows = projected(planned, in_session(frame, self.spark))
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
        if run_id in position.runs:
            reason = f"the run {run_id!r} was committed before"
            self.bus.emit(events.Stopped(planned.names.pipeline, reason))
            return False
        audit = audit_of(self.prepared.profile, planned, self.client, self.bus)
        batches = acquired.batches(position, source, self.bus)
        try:
            batches.note("start", position)
            audit.start()
            self._write(planned, source, batches, rows, run_id)
            note_clean_end(batches, self.bus, is_at_rest=True)
        finally:
            close(audit, batches)
        self.bus.emit(events.Stopped(planned.names.pipeline, f"the run {run_id!r} is committed"))
        return True

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
        step = PlannedBatch(_QUERY, number, {}, {}, is_stateful=True, is_opaque=True, run_id=run_id)
        batches.run(step, MicroBatchWork(stages, rows, number, none))


def _require_batches(pipeline: str, query_id: str) -> None:
    """Raise UsageError if the pipeline is a streaming one: its ledger has a query of Spark."""
    if query_id not in ("", _QUERY):
        raise UsageError(
            "job_kind_changed",
            f"{pipeline} is the name of a streaming job: its ledger has micro-batches of the query "
            f"{query_id}",
            hint="give the batch job a name of its own",
        )


def require_run_id(run_id: str) -> None:
    """Raise UsageError unless the text can be the id of a run."""
    if not isinstance(run_id, str) or not 0 < len(run_id) <= RUN_ID_MAX:
        raise UsageError(
            "run_id_invalid",
            f"the id of a run is {run_id!r:.120}; expected a text of 1 to {RUN_ID_MAX} characters",
            hint='use what makes the run unique, such as its day: `run(id="2026-11-23")`',
        )
