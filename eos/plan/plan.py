"""The plan of a run: a pipeline file and a profile, resolved to the values that the run uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eos.config import avro, ddl, protobuf
from eos.config.debezium import COLUMNS
from eos.config.secrets import require_hidden
from eos.config.source import columns_once
from eos.encode.sink_spec import SinkSpec
from eos.errors import UsageError
from eos.formats import debezium
from eos.formats.expressions import Format
from eos.kafka.compression_type import Codec
from eos.kafka.settings import KafkaSettings
from eos.plan.connection import Connection, named_cluster
from eos.plan.declared import declared
from eos.plan.dedup import dedup, distinct
from eos.plan.delta_sink import Table, tables
from eos.plan.lookup import LookupTable, lookups
from eos.plan.names import Names
from eos.plan.outputs import Outputs, outputs
from eos.read.decode import Decode, RecordRule
from eos.read.dedup_by import NO_NULL, Distinct

if TYPE_CHECKING:
    from eos.config.debezium import Debezium
    from eos.config.model import PipelineFile, Profile
    from eos.config.rejected_records import Rules
    from eos.config.security import Security
    from eos.config.sink import Sink
    from eos.config.source import KafkaSource, Read, Reader, Source
    from eos.dedup.stamp_columns import StampRules
    from eos.transform.functions import Transform


BROKERS_CHOICE = -1  # a topic's replication factor is the broker's default


@dataclass(frozen=True, slots=True)
class NewTopic:
    """The settings with which a target topic is created if it does not exist."""

    partitions: int
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeadLetterSink:
    """The topic for dead letters."""

    topic: str
    codec: Codec = Codec.LZ4


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline on a profile, as the values that a run uses."""

    names: Names
    bootstrap: tuple[str, ...]
    source: KafkaSource
    transforms: Sequence[Transform]
    sinks: tuple[SinkSpec, ...]
    created_topics: Mapping[str, NewTopic]
    trigger_every_ms: int | None  # None: the run ends once it has read the existing records
    transaction_timeout_ms: int
    deployment: str  # the owner's name; if empty, the id in the state root is used
    run_id: str = ""  # of this run, in its ledger records; empty for commands
    decode: Decode = field(default_factory=Decode)
    outputs: Outputs = field(default_factory=lambda: Outputs({}, (), is_filtered=False))
    dead_letters: DeadLetterSink | None = None
    output_mode: str = "append"
    is_stateful: bool = False  # set once the stream was checked
    is_dataframe: bool = False  # the source is a DataFrame of a Python job, and no topics
    parallelism: int = 1
    message_bytes_max: Mapping[str, int] = field(default_factory=dict)
    security: Security | None = None
    client: Mapping[str, str] = field(default_factory=dict)  # properties of both Kafka clients
    source_cluster: Connection | None = None  # None: the source is on the targets' cluster
    dedup: StampRules | None = None
    tables: tuple[Table, ...] = ()
    lookups: tuple[LookupTable, ...] = ()
    is_once: bool = False  # the run reads all existing records in one micro-batch and ends
    reader: Reader = "auto"  # as declared; `plan/reader.py` makes the choice
    declared: Mapping[str, str] = field(default_factory=dict)  # the file's settings, for the ledger
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)  # the profile's

    @property
    def kafka(self) -> KafkaSettings:
        """The connection settings of the driver and the writers, for the targets' cluster."""
        return Connection(self.bootstrap, self.security, self.client).kafka

    @property
    def source_connection(self) -> Connection:
        """The connection to the source's cluster, which is that of the targets without another."""
        return self.source_cluster or Connection(self.bootstrap, self.security, self.client)

    @property
    def logins(self) -> tuple[Security | None, ...]:
        """The logins of the targets' cluster and of another one."""
        other = self.source_cluster
        return (self.security, *([] if other is None else [other.security]))

    @property
    def commits_group(self) -> bool:
        """Whether transactions have the group's offsets. A broker only accepts offsets of its own
        topics, so with another cluster they are mirrored there after the commit, and decide
        nothing."""
        return self.source_cluster is None

    @property
    def topics_written_beside_source(self) -> tuple[str, ...]:
        """The pipeline's own topics on the source's cluster, which the source must not read."""
        return () if self.source_cluster else (self.names.ledger, *self.sink_topics)

    @property
    def spark_trigger(self) -> dict[str, Any]:
        """Return the trigger as arguments of Spark's `trigger()`.

        Spark's `once` ignores `max_records`, so a pipeline file may not have both."""
        if self.is_once:
            return {"once": True}
        if self.trigger_every_ms is None:
            return {"availableNow": True}
        return {"processingTime": f"{self.trigger_every_ms} milliseconds"}

    @property
    def bytes_max(self) -> int | None:
        """Return how many bytes of record batches a transaction reads at most; None: no limit."""
        return None if self.is_once else self.source.max_bytes

    @property
    def waits_for(self) -> tuple[int, int] | None:
        """Return the records that a micro-batch waits for, and the longest wait in ms; None if it
        does not wait.

        A run that ends never waits. Spark would count the last records, which are too few, as
        unavailable, and the run would end without them."""
        source = self.source
        if self.trigger_every_ms is None or source.min_records is None:
            return None
        return (source.min_records, source.max_delay_ms or 0)

    @property
    def reason_to_end(self) -> str:
        """The reason to log when a run ends without a signal or an error."""
        return "one micro-batch was requested" if self.is_once else "drained"

    @property
    def source_topics(self) -> tuple[str, ...]:
        return self.source.topic_names

    @property
    def row_topics(self) -> tuple[str, ...]:
        """The target topics of the last step's rows, so without the topic of the dead letters."""
        found = [topic for sink in self.sinks for topic in (sink.topic, *sink.topics) if topic]
        return tuple(dict.fromkeys(found))

    @property
    def sink_topics(self) -> tuple[str, ...]:
        """All topics that a transaction may write to, except the ledger."""
        return (*self.row_topics, *([self.dead_letters.topic] if self.dead_letters else []))

    @property
    def sink_columns(self) -> tuple[str, ...]:
        """The columns of the last step from which sinks read topic, partition and timestamp."""
        found = [
            column
            for sink in self.sinks
            for column in (sink.topic_column, sink.partition_column, sink.timestamp_column)
            if column
        ]
        return tuple(dict.fromkeys(found))

    def writers(self, targets: int) -> int:
        """Return the number of writing tasks for this number of target partitions.

        There is one for each, but not more than can run at the same time."""
        return max(1, min(targets, self.parallelism))


def plan(
    pipeline: PipelineFile,
    profile: Profile,
    bootstrap: tuple[str, ...],
    transforms: Sequence[Transform],
) -> Plan:
    """Return the plan of a pipeline on a profile. This sends no request to Kafka or Spark.

    Raise UsageError if the pipeline file contains a value that the profile keeps secret. Each
    command that prints something about a pipeline first makes its plan, so it can't print a secret.
    """
    require_hidden(pipeline, profile)
    built = outputs(pipeline.sink.kafka, pipeline.folder)
    dead = pipeline.sink.dead_letter
    dead_letters = DeadLetterSink(dead.topic, Codec[dead.compression.upper()]) if dead else None
    by = pipeline.producers
    planned = Plan(
        names=Names.of(profile.names.prefix, pipeline.name, profile.state.root),
        bootstrap=bootstrap,
        tables=tables(pipeline.sink.delta, pipeline.project_root),
        lookups=lookups(pipeline.tables, pipeline.project_root),
        source=pipeline.source.kafka,
        transforms=transforms,
        sinks=built.sinks,
        outputs=built,
        created_topics=_new_topics(pipeline.sink),
        trigger_every_ms=pipeline.trigger.every_ms,
        is_once=pipeline.trigger.once is True,
        reader=pipeline.source.reader,
        transaction_timeout_ms=pipeline.transaction.timeout_ms,
        deployment=profile.deployment or "",
        decode=replace(
            decode(pipeline.source, pipeline.expect, pipeline.folder),
            carries=(by.verdict,) if by is not None and by.verdict else (),
        ),
        dead_letters=dead_letters,
        output_mode=pipeline.output_mode,
        is_stateful=pipeline.source.dataframe is True,  # only its checkpoint knows its offsets
        is_dataframe=pipeline.source.dataframe is True,
        security=profile.kafka.security,
        client=profile.kafka.client,
        source_cluster=named_cluster(pipeline.source.kafka.cluster, profile, pipeline.name),
        dedup=dedup(by),
        declared=declared(pipeline),
        spark_conf=profile.spark.conf,
    )
    return _with_distinct(planned, distinct(pipeline.distinct))


def _new_topics(sink: Sink) -> Mapping[str, NewTopic]:
    creating = [(each.topic_names, each.create) for each in sink.kafka]
    if sink.dead_letter is not None:
        creating.append(((sink.dead_letter.topic,), sink.dead_letter.create))
    return {
        topic: NewTopic(
            create.partitions, create.replication or BROKERS_CHOICE, dict(create.config)
        )
        for topics, create in creating
        if create is not None
        for topic in topics
    }


def decode(source: Source, expect: Rules = (), folder: Path = Path()) -> Decode:
    """Return how the source's records are parsed and checked. `folder` has the schema files.

    Raise UsageError if two columns have the same name.
    """
    rules = tuple(RecordRule(each.name, each.rule, each.on_error) for each in expect)
    key, value = _format(source.key, folder), _format(source.value, folder)
    try:
        columns_once({"key": key.names, "value": value.names})
    except ValueError as error:
        raise UsageError(
            "source_column_duplicate",
            f"the source has a duplicate column: {error}",
            hint="rename the column, or set `as: NAME` to put all columns into one column NAME",
        ) from error
    return Decode(key, value, source.on_error, rules)


def _with_distinct(planned: Plan, by: Distinct | None) -> Plan:
    if by is None:
        return planned
    rules = (*planned.decode.rules, RecordRule(NO_NULL, by.condition))
    return replace(planned, decode=replace(planned.decode, rules=rules, distinct=by))


def _format(read: Read, folder: Path) -> Format:
    if isinstance(read, str):
        return Format(read)
    column = read.column or ""
    if read.debezium is not None:
        return _event(read.debezium, column, read.subject or "", folder)
    if read.avro is not None:
        text = avro.text_of(read.avro, folder)
        subject = avro.subject_of(read.avro)
        names = avro.field_names(text) if text else ()
        return Format("avro", text, names, column=column, subject=subject)
    if read.protobuf is not None:
        message = protobuf.message_of(read.protobuf, folder)
        names = tuple(each.name for each in message.fields)
        subject = read.protobuf.subject or ""
        return Format("protobuf", "", names, column=column, message=message, subject=subject)
    assert read.json_schema is not None, "a format has one of the four"
    columns = ddl.columns(read.json_schema)
    required = tuple(each.name for each in columns if each.is_required)
    names, subject = tuple(each.name for each in columns), read.subject or ""
    return Format("json", read.json_schema, names, required, column, subject)


def _event(read: Debezium, column: str, subject: str, folder: Path) -> Format:
    """Return the format of Debezium's change events. `subject` is that of JSON events."""
    names = tuple(COLUMNS)
    if read.avro is not None:
        text, subject = avro.text_of(read.avro, folder), avro.subject_of(read.avro)
        try:
            if text:
                debezium.require_event(text)
        except ValueError as error:
            raise UsageError(
                "debezium_schema_invalid",
                f"the Avro schema of the source's `debezium` is unusable: {error}",
                hint="use the schema that Debezium registers for the topic's values, the envelope",
            ) from error
        return Format("avro", text, names, column=column, subject=subject, is_event=True)
    assert read.json_schema is not None, "an event has one of the two"
    required = tuple(each.name for each in ddl.columns(read.json_schema) if each.is_required)
    schema = debezium.json_schema(read.json_schema)
    return Format("json", schema, names, required, column, subject, is_event=True)
