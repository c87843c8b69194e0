"""The life of one run: look, fence, read, decide (rule R5), then let Spark call us."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import eos
from eos.config.load import load_pipeline, load_profile
from eos.deadline import Deadline
from eos.errors import EosError, FencedError, UnavailableError, UsageError
from eos.faults import CrashPlan
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.plan.plan import BROKERS_CHOICE, Plan, plan
from eos.read.kafka_source import KafkaSource
from eos.read.offset_log import Checkpoint
from eos.run.query import PipelineQuery, data_loss
from eos.run.session import open_session
from eos.run.start import (
    choose_checkpoint,
    source_topic_ids,
    starting_offsets,
    where_to_go_on,
    with_targets,
)
from eos.run.stopping import Stopping
from eos.transaction.coordinator import Coordinator
from eos.transaction.ledger import Ledger
from eos.transaction.micro_batch import MicroBatches
from eos.transaction.port import Profile as TransactionProfile
from eos.transaction.settings import KafkaSettings
from eos.transaction.wire import Wire
from eos.transform.functions import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_TIMEOUT_MS = 120_000


def run(pipeline_path: Path, profile_name: str | None, bootstrap: str | None) -> None:
    """Returns when the source is drained (`available_now`) or the run was asked to stop."""
    pipeline = load_pipeline(pipeline_path)
    profile = load_profile(profile_name, pipeline.project_root)
    addresses = tuple(bootstrap.split(",")) if bootstrap else profile.kafka.bootstrap
    if not addresses:
        raise UsageError(
            f"profile {profile.name!r} names no kafka.bootstrap",
            hint="./spark-submit.sh starts an embedded broker for such a profile",
        )
    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    planned = plan(pipeline, profile, addresses, functions)
    crash = CrashPlan.from_environment()
    stopping = Stopping()
    spark = open_session(planned.names.pipeline)
    stopping.listen()
    if stopping.is_asked:
        return
    bus = Bus()
    bus.subscribe(Console())
    wire = Wire(KafkaSettings(addresses), TransactionProfile.TV2)
    try:
        _run(spark, wire, planned, bus, crash, stopping)
    finally:
        wire.close()
        bus.close()


def _run(
    spark: SparkSession,
    wire: Wire,
    planned: Plan,
    bus: Bus,
    crash: CrashPlan,
    stopping: Stopping,
) -> None:
    deadline = Deadline.after_ms(START_TIMEOUT_MS)
    wire.require_supported(deadline)
    planned = with_targets(planned, wire, spark.sparkContext.defaultParallelism, deadline)
    names = planned.names
    ledger = Ledger(wire, names.ledger, names.pipeline, _owner(planned))
    ledger.ensure_topic(BROKERS_CHOICE, deadline)
    coordinator = Coordinator(
        wire,
        names.transactional_id,
        names.group,
        planned.transaction_timeout_ms,
        reached=crash.reached,
    )
    coordinator.fence(deadline)
    position = where_to_go_on(planned, wire, ledger, coordinator, deadline)
    location = choose_checkpoint(spark, names.checkpoints, position)
    batches = MicroBatches(
        coordinator, ledger, position, bus, crash, lambda: source_topic_ids(planned, wire)
    )
    query = PipelineQuery(planned, wire, Checkpoint(spark, location), batches, crash)
    source = KafkaSource(
        bootstrap=",".join(planned.bootstrap),
        topics=planned.source_topics,
        records_max=planned.source.max_records,
        partitions_min=planned.source.min_partitions,
        starts=starting_offsets(planned, wire, position, deadline),
    )
    stream = source.stream(spark)
    query.check(stream)
    if not stopping.is_asked:
        _start_and_wait(stream, query, batches, planned, location, bus, stopping)


def _start_and_wait(
    stream: Any,
    query: PipelineQuery,
    batches: MicroBatches,
    planned: Plan,
    location: str,
    bus: Bus,
    stopping: Stopping,
) -> None:
    trigger: dict[str, Any] = (
        {"availableNow": True}
        if planned.trigger_every_ms is None
        else {"processingTime": f"{planned.trigger_every_ms} milliseconds"}
    )
    name = planned.names.pipeline
    writer = stream.writeStream.queryName(name).foreachBatch(query)
    try:
        running = writer.option("checkpointLocation", location).trigger(**trigger).start()
        bus.emit(events.PipelineStarted(pipeline=name, checkpoint=location))
        stopping.attach(running, batches)
        running.awaitTermination()
    except Exception as error:
        if isinstance(query.error, FencedError):
            raise query.error from error
        if not stopping.is_asked:
            raise _ended_by(query.error or error, batches) from error
    reason = "asked to stop" if stopping.is_asked else "drained"
    bus.emit(events.Stopped(pipeline=name, reason=reason))


def _ended_by(error: Exception, batches: MicroBatches) -> EosError:
    """Why the query ended, if it was not us who said so.

    Another copy on the same checkpoint makes Spark stop before we meet a refusal of Kafka's: then
    who owns the transactional id decides whether to start again.
    """
    if isinstance(error, EosError):
        return error
    try:
        batches.require_owner()
    except FencedError as fenced:
        return fenced
    except EosError:
        pass  # what ended the query tells more
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return data_loss(error) or UnavailableError(f"the query ended: {lines[0][:500]}")


def _owner(planned: Plan) -> Mapping[str, Any]:
    return {
        "deployment": planned.deployment,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "version": eos.__version__,
    }
