"""The keys of a pipeline's source: its topics, formats, and the position of the first run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from eos.config import avro, ddl
from eos.config.avro import Avro
from eos.config.base import (
    KAFKA_COLUMNS,
    MAPPING,
    WORD,
    ClusterName,
    DurationMs,
    Identifier,
    SizeBytes,
    Strict,
    Subject,
    Topic,
    word_or_mapping,
)
from eos.config.debezium import COLUMNS, Debezium
from eos.config.literals import instant_ms, topic_pattern
from eos.config.protobuf import Protobuf
from eos.config.rejected_records import Answer

_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_OFFSET_MAX = 2**63 - 1


def _partition(value: object) -> object:
    if isinstance(value, str) and not _PARTITION.fullmatch(value):
        raise ValueError("expected the number of a partition as key")
    return value


InstantMs = Annotated[
    int,
    BeforeValidator(instant_ms),
    WithJsonSchema(
        {"type": "string", "format": "date-time", "examples": ["2026-11-21T10:00:00Z"]},
    ),
]
Partition = Annotated[int, BeforeValidator(_partition), Field(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Field(ge=0, le=_OFFSET_MAX)]
Offsets = Annotated[Mapping[Partition, Offset], Field(min_length=1)]


class StartAt(Strict):
    """The position to begin at, one of three.

    `group`: another consumer group's offsets. `timestamp`: a time. `offsets`: a number for each
    partition.
    """

    group: str | None = Field(default=None, min_length=1)
    timestamp_ms: InstantMs | None = Field(default=None, alias="timestamp")
    offsets: Annotated[Mapping[Topic, Offsets], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _is_one_of_three(self) -> StartAt:
        if [self.group, self.timestamp_ms, self.offsets].count(None) != 2:
            raise ValueError("expected one of `group`, `timestamp` and `offsets`")
        return self


StartWord = Literal["earliest", "latest", "group"]
Start = Annotated[
    Annotated[StartWord, Tag(WORD)] | Annotated[StartAt, Tag(MAPPING)],
    word_or_mapping(
        "expected earliest, latest, group, or a mapping with one of the keys group, timestamp, "
        "offsets",
        any_text=False,
    ),
]


class KafkaSource(Strict):
    """The source topics, by name or by a regular expression that matches the whole name.

    `cluster` names one of the profile's `clusters`; without it, the topics are on the targets'
    cluster. `max_records` is the most that one micro-batch reads. `max_bytes` is the most that one
    transaction reads, in bytes of record batches in the log: a micro-batch with more is divided
    among several transactions. With `min_records`, a micro-batch begins once so many records have
    arrived, or once the time `max_delay` has passed since the previous one.
    """

    topic: Topic | None = None
    topics: tuple[Topic, ...] = ()
    pattern: Annotated[str, Field(min_length=1), AfterValidator(topic_pattern)] | None = None
    cluster: ClusterName | None = None
    start: Start = "earliest"
    max_records: int = Field(default=500_000, ge=1)  # in one micro-batch, all partitions together
    max_bytes: SizeBytes | None = None
    min_records: int | None = Field(default=None, ge=1)  # like `max_records`
    max_delay_ms: DurationMs | None = Field(default=None, alias="max_delay")
    min_partitions: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _waits_with_a_limit(self) -> KafkaSource:
        if (self.min_records is None) != (self.max_delay_ms is None):
            raise ValueError(
                "expected both `min_records` and `max_delay`, the longest time to wait for that "
                "many records, or neither"
            )
        if self.min_records is not None and self.min_records > self.max_records:
            raise ValueError(
                f"expected `min_records` of at most `max_records` ({self.max_records}), got "
                f"{self.min_records}"
            )
        return self

    @model_validator(mode="after")
    def _names_topics_once(self) -> KafkaSource:
        if [self.topic is None, not self.topics, self.pattern is None].count(False) != 1:
            raise ValueError("expected one of `topic`, `topics` (at least one) and `pattern`")
        if len(set(self.topics)) != len(self.topics):
            raise ValueError("expected unique names in `topics`")
        return self

    @model_validator(mode="after")
    def _starts_where_it_reads(self) -> KafkaSource:
        offsets = self.start.offsets if isinstance(self.start, StartAt) else None
        if offsets is not None:
            for topic in sorted(offsets):
                if not self.reads(topic):
                    raise ValueError(f"expected offsets of source topics: `{topic}` is not one")
            for topic in self.topic_names:
                if topic not in offsets:
                    raise ValueError(f"expected offsets of each source topic: `{topic}` has none")
        return self

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Return all source topics in the file's order; empty if a pattern selects them."""
        return self.topics if self.topic is None else (self.topic,)

    def reads(self, topic: str) -> bool:
        """Return whether the topic is a source topic, or would be one if it existed."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topic_names


class ParsedFormat(Strict):
    """A key or value that is decoded by a schema.

    `json` is a schema in Spark's notation for JSON objects, `avro` one for Avro records, `protobuf`
    a message type, `debezium` a change event of a database (a value only). The columns are added to
    Kafka's own. With `as`, they are one column of that name. A JSON column that is NOT NULL must be
    in each record. With `subject`, the id of a JSON schema in the schema registry is before each
    JSON object.
    """

    json_schema: Annotated[str, AfterValidator(ddl.checked)] | None = Field(
        default=None, alias="json"
    )
    avro: Avro | None = None
    protobuf: Protobuf | None = None
    debezium: Debezium | None = None
    subject: Subject | None = None
    column: Identifier | None = Field(default=None, alias="as")

    @model_validator(mode="after")
    def _is_one_of_four(self) -> ParsedFormat:
        if [self.json_schema, self.avro, self.protobuf, self.debezium].count(None) != 3:
            raise ValueError("expected one of `json`, `avro`, `protobuf` and `debezium`")
        is_json = self.debezium.json_schema if self.debezium else self.json_schema
        if self.subject is not None and not is_json:
            raise ValueError("expected `subject` inside `avro` or `protobuf`: here it is for JSON")
        if self.avro is not None and avro.is_registered(self.avro):
            raise ValueError("expected no `register` in a source: only a sink registers its schema")
        return self

    @property
    def avro_schema(self) -> Avro | None:
        """Return the Avro schema of the records or of Debezium's events; None for other formats."""
        return self.avro if self.debezium is None else self.debezium.avro

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns of the schema, as far as they are known without reading a file."""
        if self.column:
            return (self.column,)
        if self.debezium is not None:
            return tuple(COLUMNS)
        if self.json_schema is not None:
            return tuple(column.name for column in ddl.columns(self.json_schema))
        return avro.field_names(self.avro) if isinstance(self.avro, str) else ()


Read = Annotated[
    Annotated[Literal["binary", "string"], Tag(WORD)] | Annotated[ParsedFormat, Tag(MAPPING)],
    word_or_mapping(
        "expected binary, string, or a mapping with the key json, avro, protobuf or debezium",
        any_text=False,
    ),
]


Reader = Literal["auto", "arrow", "spark"]


def _no_topics() -> KafkaSource:
    return KafkaSource.model_construct()


class Source(Strict):
    """The source: its topics, the formats of key and value, and the handling of malformed records.

    A record is malformed if it is not valid JSON, Avro, Protobuf or UTF-8, or does not match its
    schema. `on_error: fail` ends the run, `dead_letter` writes the record to the dead letter topic,
    `drop` drops and counts it. `reader` is the code that reads the records: this project's Arrow
    reader, or Spark's Kafka source. `auto` uses Arrow wherever it can. `dataframe` is only in the
    declaration of a Python job, whose source is a DataFrame of its own.
    """

    kafka: KafkaSource = Field(default_factory=_no_topics)
    dataframe: Literal[True] | None = None
    reader: Reader = "auto"
    key: Read = "binary"
    value: Read = "binary"
    on_error: Answer = "fail"

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Source:
        has_topics = "kafka" in self.model_fields_set
        if has_topics == (self.dataframe is not None):
            raise ValueError("expected `kafka`, the topics to read")
        return self

    @property
    def reads_latest(self) -> bool:
        """Return whether only the schema registry has the schema of the key or the value."""
        declared = [getattr(each, "avro_schema", None) for each in (self.key, self.value)]
        return any(each is not None and avro.is_elsewhere(each) for each in declared)

    @model_validator(mode="after")
    def _names_columns_once(self) -> Source:
        if not isinstance(self.key, str) and self.key.debezium is not None:
            raise ValueError(
                "expected no `debezium` in the key, which is no change event: read it as "
                '`{json: "id BIGINT"}`, or as `{json: "payload STRUCT<id: BIGINT>"}` if its schema '
                "is with it"
            )
        read = {"key": self.key, "value": self.value}
        columns_once({k: () if isinstance(r, str) else r.names for k, r in read.items()})
        return self


def columns_once(columns: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ValueError if a column of key or value has the name of another column."""
    reserved = {name.lower(): "Kafka's own column" for name in KAFKA_COLUMNS}
    for subject, names in columns.items():
        clashing = [name for name in names if name.lower() in reserved]
        if clashing:
            used = ", ".join(f"`{name}` ({reserved[name.lower()]})" for name in clashing)
            raise ValueError(
                f"expected column names in the {subject} that are not used yet, got {used}; `as: "
                "NAME` next to the schema puts all its columns into one column NAME"
            )
        reserved |= {name.lower(): f"a column of the {subject}" for name in names}
