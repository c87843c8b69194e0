"""Run a pipeline: check it, take ownership, start Spark's query, wait for its end, and record it.

The startup follows the rule "look, fence, read, decide". Then Spark's query runs the micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos import log_lines
from eos.audit.updater import audit_of, close
from eos.checkpoint.files import Files, files_for
from eos.checkpoint.offset_log import Checkpoint
from eos.config.load import load_pipeline
from eos.deadline import Deadline
from eos.delta.sinks import DeltaSinks, open_delta_sinks, warn_removed_tables
from eos.errors import EosError
from eos.faults import CrashPlan
from eos.kafka.client import KafkaClient
from eos.launch import startup_signals
from eos.launch.java_compiler import leave_note
from eos.ledger.record import Ends, LedgerRecord
from eos.local.processes import await_address
from eos.micro_batch.bounds import find_bounds, require_cuttable
from eos.micro_batch.source_reader import SourceReader
from eos.micro_batch.stages import Stages
from eos.micro_batch.target_guard import TargetGuard
from eos.micro_batch.task_errors import task_error
from eos.native import library as native_library
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.observe.live import ProgressLine, show_events
from eos.plan.plan import Plan
from eos.plan.reader import choose_reader, require_tokens
from eos.plan.security import naming_principal
from eos.read.byte_limit import ByteLimit
from eos.run.broker_outage import watching_brokers
from eos.run.host import Host, locked
from eos.run.idle_refresh import IdleWatch, interval_ms
from eos.run.lag_watch import following_lag
from eos.run.observing import lineage_observers, observing
from eos.run.prepared import PreparedRun, RunOptions, prepare
from eos.run.query import PipelineQuery, cause_of
from eos.run.shutdown import Stopping, StopSignals, end_query
from eos.spark.adopted_session import in_session
from eos.spark.dedup_columns import as_stream
from eos.spark.dedup_run import DedupRun, dedup_of, repeated
from eos.spark.failure import Failure
from eos.spark.lookup_tables import at_versions, pinned, require
from eos.spark.session import open_session, slots, write_checkpoints
from eos.spark.steps import projected, transformed
from eos.startup.acquire import acquire, still_ours
from eos.startup.checkpoint_dir import remove_old
from eos.startup.conditional_puts import require_conditional_puts
from eos.startup.local_checks import ChosenCheckpoint, choose, require_local
from eos.startup.registered_schemas import with_registry
from eos.startup.resume_position import (
    require_new_whole,
    require_store,
    resume_position,
    starting_offsets,
    with_targets,
)
from eos.startup.source_state import (
    LiveSource,
    require_other_cluster,
    source_client,
    source_of,
)
from eos.startup.spark_plan import check
from eos.startup.state_copy import with_own_state
from eos.transaction.clean_end import is_final, note_clean_end
from eos.transaction.micro_batch import MicroBatches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eos.audit.updater import Audit
    from eos.config.model import Profile

START_TIMEOUT_MS = 120_000


def run(pipeline_path: Path, options: RunOptions) -> None:
    """Run this process's only pipeline until its trigger ends (`available_now`, `once`) or a signal
    stops it."""
    pipeline = load_pipeline(pipeline_path, ends=options.ends)
    log_lines.name_pipeline(pipeline.name)
    prepared = prepare(pipeline, options)
    planned, is_forced = prepared.planned, options.take_over
    with (
        prepared.naming_errors(),
        closing(StopSignals()) as signals,
        locked(planned, signals.stops[0], is_forced=is_forced) as lock,
    ):

        def open_first() -> SparkSession:
            spark = open_session(prepared.name)
            signals.listen()
            return spark

        run_once(prepared, options, Host(signals.stops[0], lock, open_first))


def run_once(prepared: PreparedRun, options: RunOptions, host: Host) -> None:
    """Run a pipeline whose lock is held, until it ends or is asked to stop."""
    planned = replace(prepared.planned, run_id=host.lock.run_id)
    profile, shared = prepared.profile, host.shared
    with closing(Bus()) as bus, naming_principal(*planned.logins):
        planned = with_registry(planned, profile.registry)
        spark = host.open_session()
        planned = _with_addresses(planned, options.bootstrap_from, host.stopping)
        if host.stopping.is_requested:
            if shared is None:
                startup_signals.report_unstarted()
            else:
                log_lines.write(startup_signals.STOPPED_EARLY, pipeline=prepared.name)
            return
        observers = [*prepared.observers, *lineage_observers(profile, planned)]
        with (
            closing(KafkaClient(planned.kafka)) as client,
            _shown(bus, prepared.name, host) as live,
            observing(
                prepared.name,
                bus,
                observers,
                profile.metrics,
                profile.opentelemetry,
                shared.metrics if shared else None,
            ),
        ):
            audit = audit_of(profile, planned, client, bus)
            clients = (spark, client, planned, bus, prepared.crash)
            is_observed = profile.is_observed or bool(prepared.observers)
            run = _Run(*clients, host, audit, options, profile, live, prepared.frame, is_observed)
            with watching_brokers({client, source_client(planned, client)}, bus):
                run.run()


def _shown(bus: Bus, pipeline: str, host: Host) -> AbstractContextManager[ProgressLine | None]:
    """Print the run's events. Only a process with one pipeline has a progress line."""
    if host.shared is None:
        return show_events(bus, pipeline, lambda: host.stopping.is_requested)
    bus.subscribe(Console(pipeline=pipeline))
    bus.subscribe(host.shared.note)
    return nullcontext()


def _with_addresses(planned: Plan, file: Path | None, stopping: Stopping) -> Plan:
    """Return the plan with Kafka's addresses from the file, which another process writes. Wait for
    it. Without a file, return the plan unchanged."""
    if file is None:
        return planned
    found = await_address(file, lambda: stopping.is_requested)
    return replace(planned, bootstrap=tuple(found.split(",")))


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a pipeline: the objects that all its steps use, and the steps in their order.

    The position comes from the ledger (`resume_position`). A checkpoint is chosen for it, and Delta
    tables are brought up to it. Spark's source begins at `starting_offsets`, and
    `ledger.ranges.decide` chooses what each micro-batch reads.
    """

    spark: SparkSession
    client: KafkaClient
    planned: Plan
    bus: Bus
    crash: CrashPlan
    host: Host
    audit: Audit
    options: RunOptions
    profile: Profile
    live: ProgressLine | None  # only on a terminal
    frame: DataFrame | None  # a Python job's own
    is_observed: bool

    @property
    def stopping(self) -> Stopping:
        return self.host.stopping

    def run(self) -> None:
        deadline = Deadline.after_ms(START_TIMEOUT_MS)
        self.client.agree_on_profile(deadline)
        parallelism = self.spark.sparkContext.defaultParallelism
        require_other_cluster(self.planned, self.client, deadline)
        planned = with_targets(self.planned, self.client, parallelism, deadline)
        require(planned, self.spark)
        # Before ownership is acquired: an instance that can't run must not fence one that can.
        planned = check(planned, self._stream(planned, {}), self.bus)
        require_cuttable(planned, self.options.until_ms)
        files = files_for(planned.names.checkpoints, self.spark)
        require_store(planned, files)
        require_conditional_puts(planned, files, has_audit=self.profile.audit.transactions)
        dedup = dedup_of(planned, self.crash)
        tables = open_delta_sinks(planned, self.spark, self.bus, self.crash)
        if tables is not None:
            stream = as_stream(self._stream(planned, {}), planned.dedup)
            tables.check(transformed(planned, stream))
        source = LiveSource(planned, source_client(planned, self.client))
        choice = choose_reader(planned, native_library.status().problem)
        require_tokens(planned, choice, is_one_machine=slots(self.spark) > 0)
        reader = SourceReader(
            planned,
            choice,
            self.client,
            self.spark,
            self.bus,
            is_bounded=self.options.until_ms is not None,
            is_observed=self.is_observed,
            links_traces=self.profile.is_traced,
            shares_spark=self.host.shared is not None,
        )
        # Spark's checks may have taken long, for example with a large lookup table.
        soon = Deadline.after_ms(START_TIMEOUT_MS)
        batches, last = self._acquire_pipeline(planned, source, dedup, soon)
        with ExitStack() as stack:
            stack.callback(batches.group.close)
            stack.callback(lambda: close(self.audit, batches))
            self._owning(planned, source, reader, batches, last, dedup, tables)

    def _owning(
        self,
        planned: Plan,
        source: LiveSource,
        reader: SourceReader,
        batches: MicroBatches,
        last: LedgerRecord | None,
        dedup: DedupRun | None,
        tables: DeltaSinks | None,
    ) -> None:
        """Run the query of a pipeline whose transactional id this process owns. Then record the
        clean end in the ledger."""
        files = files_for(planned.names.checkpoints, self.spark)
        write_checkpoints(self.spark, is_local=files.is_local)
        with still_ours(batches.coordinator, batches.ledger):
            chosen = self._choose_checkpoint(planned, files, batches, last)
            location, batches.position = chosen.location, chosen.position
            checkpoint = Checkpoint(files, location, is_opaque=planned.is_dataframe)
            # Copying state may have taken long, and so may writing a large micro-batch to tables.
            soon = Deadline.after_ms(START_TIMEOUT_MS)
            require_new_whole(planned, source, batches.position, checkpoint, soon, last)
            if dedup is not None:
                dedup.require(batches.position)
            self._settle(planned, source, batches, last, dedup, tables)
        # Before Spark's first write to the checkpoint: after a crash, the next run finds no clean
        # end, and in a remote state root it uses another folder.
        name, keeps_state = checkpoint.name, planned.is_stateful
        beginning = replace(batches.position, checkpoint=name, keeps_state=keeps_state)
        batches.note("start", beginning, chosen.note)
        remove_old(files, location, self.bus)
        self.audit.start()
        if planned.is_stateful:  # its stream keeps the versions that it starts with
            planned = pinned(planned, self.spark)
        targets = TargetGuard(planned, self.client)
        shared = (planned, self.client, self.spark, source, reader, targets, self.crash)
        soon = Deadline.after_ms(START_TIMEOUT_MS)
        starts = starting_offsets(planned, source.client, batches.position, soon)
        until_ms, ends = self.options.until_ms, batches.position.ends
        bounds = find_bounds(source.client, until_ms, starts, ends, soon)
        most = planned.bytes_max
        limit = None if most is None else ByteLimit(most, source.client)
        stages = Stages(*shared, dedup=dedup, tables=tables, bounds=bounds, byte_limit=limit)
        query = PipelineQuery(stages, checkpoint, batches, self.audit)
        stream = self._stream(planned, starts)
        if planned.is_stateful:
            stream = projected(planned, stream)
        self._wait(stream, query, batches, location)
        # A stop interrupts Spark, perhaps during a write that the object store completes later. So
        # the checkpoint counts as at rest only if no stop was requested.
        note_clean_end(batches, self.bus, is_at_rest=not self.stopping.is_requested)

    def _settle(
        self,
        planned: Plan,
        source: LiveSource,
        batches: MicroBatches,
        last: LedgerRecord | None,
        dedup: DedupRun | None,
        tables: DeltaSinks | None,
    ) -> None:
        """Write committed records to the Delta tables that lack them.

        Call it before the start record is written. Otherwise, after another crash, the start record
        would be the ledger's last one, and no longer the attempt whose rows a table lacks.
        """
        position, topic = batches.position, planned.names.ledger
        if tables is None:
            warn_removed_tables(position, self.bus)
            batches.position = replace(position, tables={})
            return
        ids = self.client.topics([topic], Deadline.after_ms(START_TIMEOUT_MS))
        ledger_id = ids[topic].topic_id

        def rows(starts: Ends, ends: Ends, attempt: Mapping[str, Any]) -> DataFrame:
            read = source_of(planned, starts).records(self.spark, ends)
            try:
                read = repeated(dedup, read, attempt.get("dedup", {}))
            except EosError:
                raise
            except Exception as error:
                raise task_error(Failure.of(error)) from error
            # The earlier attempt may have looked up new schema ids; its records need them here.
            planned.decode.learned(read)
            return transformed(at_versions(planned, attempt.get("reads", {})), read)

        found = tables.settle(batches.ledger, ledger_id, position, last, source, rows)
        batches.position = replace(position, tables=found)

    def _choose_checkpoint(
        self, planned: Plan, files: Files, batches: MicroBatches, last: LedgerRecord | None
    ) -> ChosenCheckpoint:
        identity, before = batches.coordinator.identity, batches.position
        accepts = self.options.accepts_state_loss
        chosen = choose(planned, files, before, last, identity, self.bus, accepts=accepts)
        return with_own_state(planned, files, chosen, last, identity, self.bus)

    def _stream(self, planned: Plan, starts: Ends) -> DataFrame:
        own = None if self.frame is None else in_session(self.frame, self.spark)
        return source_of(planned, starts).stream(self.spark) if own is None else own

    def _acquire_pipeline(
        self,
        planned: Plan,
        source: LiveSource,
        dedup: DedupRun | None,
        deadline: Deadline,
    ) -> tuple[MicroBatches, LedgerRecord | None]:
        """Acquire the pipeline by the rule "look, fence, read, decide".

        This machine's files are checked between look and fence. Return the object that commits this
        run's micro-batches, and the ledger's last record.
        """
        crash = self.live.watching(self.crash) if self.live else self.crash
        files = files_for(planned.names.checkpoints, self.spark)

        def examine(last: LedgerRecord | None) -> None:
            require_local(planned, files, dedup, last, accepts=self.options.accepts_state_loss)

        client, forced = self.client, self.options.take_over
        acquired = acquire(planned, client, crash, deadline, is_forced=forced, examine=examine)
        with still_ours(acquired.coordinator, acquired.ledger):
            position = resume_position(planned, source, acquired.last, self.bus, deadline)
        return acquired.batches(position, source, self.bus), acquired.last

    def _wait(
        self, stream: Any, query: PipelineQuery, batches: MicroBatches, location: str
    ) -> None:
        trigger, name = self.planned.spark_trigger, self.planned.names.pipeline
        if self.stopping.is_requested:
            reason = f"{self.stopping.reason} before it started"
            self.bus.emit(events.Stopped(pipeline=name, reason=reason))
            return
        named = stream.writeStream.queryName(name).outputMode(self.planned.output_mode)
        writer = named.foreachBatch(query)
        # Before the query starts: if the cluster does not answer now, no attempt is interrupted.
        idle_ms = interval_ms(self.client, Deadline.after_ms(START_TIMEOUT_MS))
        with ExitStack() as stack:
            try:
                running = writer.option("checkpointLocation", location).trigger(**trigger).start()
                reader = query.stages.reader
                limits = (self.planned.transaction_timeout_ms / 1000, self.audit.behind_max)
                self.bus.emit(
                    events.PipelineStarted(name, location, reader.name, reader.reason, *limits)
                )
                stack.callback(end_query, running)
                stack.enter_context(self.stopping.attached(running, batches))
                stack.enter_context(following_lag(running, query, batches, self.live))

                def end(error: EosError) -> None:
                    query.error = error
                    running.stop()

                watch = IdleWatch(
                    batches, idle_ms, self.host.lock, self.bus, end, lambda: self.audit.needed_from
                )
                stack.callback(watch.stop)
                watch.start()
                running.awaitTermination()
            except Exception as error:
                if is_final(query.error):
                    raise query.error from error
                if not self.stopping.is_requested and not query.is_at_bounds:
                    raise cause_of(query, error, batches) from error
            if is_final(query.error):
                raise query.error
        if went_to := query.stages.reader.rows_went_to:
            leave_note(name, is_in_python=went_to == {"python"})
        is_bounded = query.stages.bounds is not None
        reached = "read up to --until" if is_bounded else self.planned.reason_to_end
        reason = self.stopping.reason or reached
        refused = tuple((*of, count) for of, count in query.refused.items())
        self.bus.emit(events.Stopped(pipeline=name, reason=reason, refused=refused))
