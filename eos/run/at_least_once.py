"""`guarantee: at_least_once`: the same source, steps and sinks, written by Spark's own Kafka sink.

No transaction, no ledger, no transactional id: Spark's checkpoint is all that is known. What a
micro-batch wrote stays, so whatever dies before Spark has noted its end (a task, a worker, the
driver) has it written again. For comparing the two, and for brokers without transactions.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from eos.deadline import Deadline
from eos.errors import (
    AttemptFailedError,
    EosError,
    RecordRefusedError,
    Recovery,
    UsageError,
    about,
)
from eos.observe import events
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.plan.plan import Plan
from eos.plan.security import source_options
from eos.read.files import files_for
from eos.read.offset_log import Checkpoint
from eos.run.beginning import resolve
from eos.run.brokers import watching_brokers
from eos.run.columns import quoted_text, sink_columns
from eos.run.failure import Failure
from eos.run.lookup import pinned, require
from eos.run.plan_check import check
from eos.run.refusal import record_refusal
from eos.run.session import write_checkpoints
from eos.run.source import source_of
from eos.run.start import require_store, with_targets
from eos.run.state import state_refusal
from eos.run.steps import transformed
from eos.run.stopping import Stopping
from eos.run.task_error import task_error
from eos.run.topics import source_topics
from eos.seal import of_this_process
from eos.transaction.ledger_record import Ends
from eos.transaction.port import TopicPartition
from eos.transaction.wire import Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from eos.encode.spec import SinkSpec

_START_TIMEOUT_MS = 120_000
_CLIENTS_REQUEST_BYTES = 1 << 20  # if nobody says another max.request.size
_UNLISTED, _TOPIC_MAX = "unlisted", 249
_NO_HEADERS = "CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"


def require_ledger(planned: Plan) -> None:
    """For the options of a start that say what to do with one."""
    if not planned.is_transactional:
        raise UsageError(
            f"{planned.names.pipeline}: --take-over and --accept-state-loss are for a pipeline "
            "that has a ledger, and this one says `guarantee: at_least_once`",
            hint="end the other copy; what was counted is in the checkpoint, or lost",
        )


def run(planned: Plan, spark: SparkSession, bus: Bus, stopping: Stopping) -> None:
    """Returns when the trigger has come to its end or the run was asked to stop."""
    bus.subscribe(Console())
    deadline = Deadline.after_ms(_START_TIMEOUT_MS)
    files = files_for(planned.names.checkpoints, spark)
    with closing(Wire(planned.kafka)) as wire, watching_brokers(wire, bus):
        planned = with_targets(planned, wire, spark.sparkContext.defaultParallelism, deadline)
        require(planned, spark)
        planned = check(planned, source_of(planned, {}).stream(spark), bus)
        require_store(planned, files, deadline)
        is_new = Checkpoint(files, planned.names.checkpoints).planned() is None
        starts = _beginning(planned, wire, deadline) if is_new else {}
        # Counts of what can't be taken would come behind the writing: so the plan itself fails.
        planned = replace(planned, decode=replace(planned.decode, is_strict=True))
        write_checkpoints(spark, is_local=files.is_local)
        rows = transformed(pinned(planned, spark), source_of(planned, starts).stream(spark))
        if not stopping.is_asked:
            writer = _writer(planned, records(sink_columns(rows, planned), planned))
            _wait(planned, writer, stopping, bus)
        reason = "asked to stop" if stopping.is_asked else planned.reason_to_end
        bus.emit(events.Stopped(pipeline=planned.names.pipeline, reason=reason))


def _beginning(planned: Plan, wire: Wire, deadline: Deadline) -> Ends:
    """`start:` as numbers, as a run with a ledger has them. From then on the checkpoint knows."""
    found = source_topics(planned.source, wire, deadline, own=planned.sink_topics)
    return resolve(
        planned.source.start,
        [TopicPartition(name, at) for name, info in found.items() for at in range(info.partitions)],
        pipeline=planned.names.pipeline,
        group=planned.names.group,
        wire=wire,
        deadline=deadline,
    )


def records(out: DataFrame, planned: Plan) -> DataFrame:
    """A row for each record of each sink, with the columns that Spark's Kafka sink reads: all sinks
    out of one evaluation."""
    made = ", ".join(_record(sink, out.columns) for sink in planned.sinks)
    return out.selectExpr(f"inline(array({made}))").where("topic IS NOT NULL")


def _record(sink: SinkSpec, present: list[str]) -> str:
    """A null where the row is not for this sink."""
    topic = quoted_text(sink.topic or "")
    if sink.topic_column is not None:
        # A row without a topic must end the run, and not pass for one that is for nobody.
        named = f"CAST(`{sink.topic_column}` AS STRING)"
        opening = of_this_process().opening(_UNLISTED)
        told = f"concat('{opening}', coalesce({named}, 'null'), ']')"
        listed = ", ".join(map(quoted_text, sink.topics))
        topic = f"IF({named} IN ({listed}), {named}, CAST(raise_error({told}) AS STRING))"
    headers = sink.headers_column if sink.headers_column in present else None
    partition = f"`{sink.partition_column}`" if sink.partition_column else "NULL"
    made = (
        f"named_struct('topic', {topic}, 'key', CAST(`{sink.key_column}` AS BINARY), "
        f"'value', CAST(`{sink.value_column}` AS BINARY), "
        f"'headers', {f'`{headers}`' if headers else _NO_HEADERS}, "
        f"'partition', CAST({partition} AS INT))"
    )
    return f"IF(`{sink.where_column}`, {made}, NULL)" if sink.where_column else made


def _writer(planned: Plan, rows: DataFrame) -> DataStreamWriter:
    writer = (
        rows.writeStream.format("kafka")
        .queryName(planned.names.pipeline)
        .outputMode(planned.output_mode)
        .option("checkpointLocation", planned.names.checkpoints)
        .option("kafka.bootstrap.servers", ",".join(planned.bootstrap))
        .option("kafka.compression.type", planned.sinks[0].codec.name.lower())
        .option("kafka.acks", "all")
        .option("kafka.max.request.size", _request_bytes_max(planned))
    )
    for name, value in source_options(planned.security).items():
        writer = writer.option(f"kafka.{name}", value)
    return writer.trigger(**planned.spark_trigger)


def _request_bytes_max(planned: Plan) -> int:
    """What the topics take, Kafka's client shall not refuse. It measures records before it has
    compressed them, and the topics after: so never below its own bound."""
    return max(_CLIENTS_REQUEST_BYTES, *planned.message_bytes_max.values())


def _wait(planned: Plan, writer: DataStreamWriter, stopping: Stopping, bus: Bus) -> None:
    names = planned.names
    try:
        running = writer.start()
        bus.emit(events.PipelineStarted(pipeline=names.pipeline, checkpoint=names.checkpoints))
        stopping.attach(running)
        running.awaitTermination()
    except Exception as error:
        if not stopping.is_asked:
            raise _told(planned, error) from error


def _told(planned: Plan, error: Exception) -> EosError:
    """Why the query ended. Nothing is redone here: a start goes on with the checkpoint."""
    name, again = planned.names.pipeline, "what it wrote before is written again by the next start"
    failure = Failure.of(error)
    unlisted = of_this_process().raised(_UNLISTED, failure.raised)
    if unlisted is not None:
        return RecordRefusedError(
            f"{name}: a row ended its micro-batch, since a sink does not list the topic "
            f"{unlisted[:_TOPIC_MAX]}; {again}",
            hint="add it to the sink's `topics`, or leave such rows out by `where`",
        )
    refused = planned.decode.raised(failure.raised)
    if refused is not None:
        return RecordRefusedError(
            f"{name}: the record {refused.topic}-{refused.partition} at offset {refused.offset} "
            f"is not taken ({refused.rule}), which ended its micro-batch; {again}",
            hint="correct the schema or the rule in the pipeline file, or let a step take such "
            "records out",
            source_topic=refused.topic,
            source_partition=refused.partition,
            source_offset=refused.offset,
            rule=refused.rule,
        )
    state = state_refusal(name, failure)
    if state is not None:  # its own way out is the ledger's
        hint = "put the transforms, or the checkpoint's files, back as they were; or remove "
        hint += f"{planned.names.checkpoints}: then it begins anew, at `start`"
        return type(state)(state.message, hint=hint, **state.fields)
    told = task_error(failure, planned.sink_topics)
    unfit = record_refusal(failure) if isinstance(told, AttemptFailedError) else None
    if unfit is not None:
        return RecordRefusedError(f"{name}: {unfit.message}; {again}", hint=unfit.hint)
    return about(name, told) if told.recovery is Recovery.STOP else told
