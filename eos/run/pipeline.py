"""The life of one run: look, fence, read, decide (rule R5), then let Spark call us."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import eos
from eos.config.load import load_pipeline, load_profile
from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError, UnavailableError, UsageError
from eos.faults import CrashPlan
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.plan.plan import Plan, plan
from eos.read.kafka_source import KafkaSource
from eos.read.offset_log import Checkpoint
from eos.run.query import PipelineQuery
from eos.run.session import open_session
from eos.run.start import (
    choose_checkpoint,
    source_topic_ids,
    starting_offsets,
    where_to_go_on,
    with_targets,
)
from eos.transaction.coordinator import Coordinator
from eos.transaction.ledger import Ledger
from eos.transaction.micro_batch import MicroBatches
from eos.transaction.port import Profile as TransactionProfile
from eos.transaction.settings import KafkaSettings
from eos.transaction.wire import Wire
from eos.transform.functions import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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
    spark = open_session(planned.names.pipeline)
    bus = Bus()
    bus.subscribe(Console())
    wire = Wire(KafkaSettings(addresses), TransactionProfile.TV2)
    try:
        _run(spark, wire, planned, bus, crash)
    finally:
        wire.close()
        bus.close()


def _run(spark: SparkSession, wire: Wire, planned: Plan, bus: Bus, crash: CrashPlan) -> None:
    deadline = Deadline.after_ms(START_TIMEOUT_MS)
    wire.require_supported(deadline)
    planned = with_targets(planned, wire, spark.sparkContext.defaultParallelism, deadline)
    names = planned.names
    ledger = Ledger(wire, names.ledger, names.pipeline, _owner(planned))
    ledger.ensure_topic(_replication(wire, deadline), deadline)
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
    _start_and_wait(stream, query, batches, planned, location, bus)


def _start_and_wait(
    stream: Any,
    query: PipelineQuery,
    batches: MicroBatches,
    planned: Plan,
    location: str,
    bus: Bus,
) -> None:
    trigger: dict[str, Any] = (
        {"availableNow": True}
        if planned.trigger_every_ms is None
        else {"processingTime": f"{planned.trigger_every_ms} milliseconds"}
    )
    writer = stream.writeStream.queryName(planned.names.pipeline).foreachBatch(query)
    running = writer.option("checkpointLocation", location).trigger(**trigger).start()
    bus.emit(events.PipelineStarted(pipeline=planned.names.pipeline, checkpoint=location))
    stopped = _stop_on_signal(running, batches)
    try:
        running.awaitTermination()
    except Exception as error:
        if stopped.is_set():
            return
        if isinstance(query.error, EosError):
            raise query.error from error
        raise _spark_error(query.error or error) from error
    bus.emit(events.Stopped(pipeline=planned.names.pipeline, reason="drained"))


def _stop_on_signal(running: StreamingQuery, batches: MicroBatches) -> threading.Event:
    """SIGTERM and SIGINT end the run cleanly: the open attempt is aborted and not redone.

    The handler runs in the main thread, which is inside a call to the JVM: the stop has to go
    through a connection, hence a thread, of its own.
    """
    stopped = threading.Event()

    def stop() -> None:
        with suppress(Exception):  # it may have ended by itself meanwhile
            running.stop()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if not stopped.is_set():
            stopped.set()
            batches.is_stopping = True
            threading.Thread(target=stop, name="eos-stop", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stopped


def _spark_error(error: Exception) -> EosError:
    text = str(error)
    lines = [line for line in text.splitlines() if line.strip()]
    if "OffsetOutOfRange" in text or "failOnDataLoss" in text or "data loss" in text:
        return PromiseBrokenError(
            f"the source lost records before they were read: {lines[0][:500]}",
            hint="retention was shorter than this pipeline's pause, or the topic was recreated",
        )
    return UnavailableError(f"the query ended: {lines[0][:500] if lines else type(error).__name__}")


def _replication(wire: Wire, deadline: Deadline) -> int:
    return int(wire.broker_config("default.replication.factor", deadline))


def _owner(planned: Plan) -> Mapping[str, Any]:
    return {
        "deployment": planned.deployment,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "version": eos.__version__,
    }
