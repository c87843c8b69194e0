"""The keys of a pipeline's sinks: target topics, dead letters, and the format of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    model_validator,
)
from pydantic_core import CoreSchema

from eos.config.avro import Avro
from eos.config.base import (
    MAPPING,
    TOPIC_PATTERN,
    WORD,
    Identifier,
    OneOrMany,
    SettingText,
    Strict,
    Subject,
    Topic,
    one_as_list,
    require_unique,
    word_or_mapping,
)
from eos.config.delta_sink import DeltaSinks
from eos.config.protobuf import Protobuf


class CreateTopic(Strict):
    """Settings to create a missing target topic. An existing topic is not changed."""

    partitions: int = Field(default=1, ge=1)
    replication: int | None = Field(default=None, ge=1, le=32_767)  # None: the broker's default
    config: dict[str, SettingText] = Field(default_factory=dict)


class TopicColumn(Strict):
    """A target topic for each row: `column` has its name, which must be one of `topics`."""

    column: Identifier
    topics: Annotated[tuple[Topic, ...], Field(min_length=1)]


class EncodedFormat(Strict):
    """A key or value made of columns, in one of three formats.

    `json` is one JSON object of these columns, in this order. `avro` is a record by a schema,
    `protobuf` a message; each field takes the column of the same name. With `subject`, the id of
    the subject's latest JSON schema in the schema registry is before the object.
    """

    json_columns: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None, alias="json"
    )
    avro: Avro | None = None
    protobuf: Protobuf | None = None
    subject: Subject | None = None

    @model_validator(mode="after")
    def _is_one_of_three(self) -> EncodedFormat:
        if [self.json_columns, self.avro, self.protobuf].count(None) != 2:
            raise ValueError("expected one of `json`, `avro` and `protobuf`")
        if self.subject is not None and self.json_columns is None:
            raise ValueError("expected `subject` inside `avro` or `protobuf`: here it is for JSON")
        return self


def _refuse_json_word(text: str) -> str:
    if text == "json":
        raise ValueError("expected a key of chosen columns, such as `{json: [order_id]}`")
    return text


Target = Annotated[
    Annotated[Topic, Tag(WORD)] | Annotated[TopicColumn, Tag(MAPPING)],
    word_or_mapping("expected a topic name, or a mapping with the keys column and topics"),
]
Expression = Annotated[str, Field(min_length=1)]
Value = Annotated[
    Annotated[Expression, Tag(WORD)] | Annotated[EncodedFormat, Tag(MAPPING)],
    word_or_mapping(
        "expected json, string, an SQL expression, or a mapping with the key json, avro or protobuf"
    ),
]
Key = Annotated[
    Annotated[Expression, AfterValidator(_refuse_json_word), Tag(WORD)]
    | Annotated[EncodedFormat, Tag(MAPPING)],
    word_or_mapping(
        "expected string, an SQL expression, or a mapping with the key json, avro or protobuf"
    ),
]


class KafkaSink(Strict):
    """A target topic and the records that rows become there.

    Without `key`, `value` and `headers`, the row's columns of that name are written unchanged.
    `where` is an SQL condition: only rows for which it is true are written.
    """

    topic: Target
    key: Key | None = None
    value: Value | None = None
    headers: dict[str, Expression] | None = None
    where: Expression | None = None
    create: CreateTopic | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    partitioner: Literal["key", "round_robin"] = "key"
    partition: str | None = Field(default=None, min_length=1)  # column: target partition
    timestamp: str | None = Field(default=None, min_length=1)  # column: record's time

    @property
    def topic_names(self) -> tuple[str, ...]:
        return self.topic.topics if isinstance(self.topic, TopicColumn) else (self.topic,)

    @property
    def expressions(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield each SQL expression of the sink, with its location below the sink in the file."""
        declared: dict[tuple[str, ...], object] = {
            ("key",): self.key,
            ("value",): self.value,
            ("where",): self.where,
        }
        declared |= {("headers", name): text for name, text in (self.headers or {}).items()}
        yield from ((place, text) for place, text in declared.items() if isinstance(text, str))


class DeadLetters(Strict):
    """A topic for rejected source records, unchanged, with the reason in headers."""

    topic: Topic
    create: CreateTopic | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"


def _topic_as_mapping(value: object) -> object:
    return {"topic": value} if isinstance(value, str) else value


class _TopicOrMapping:
    """JSON Schema of a sink that may be a topic name only."""

    @staticmethod
    def __get_pydantic_json_schema__(
        core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "pattern": TOPIC_PATTERN}, handler(core)]}


DeadLetter = Annotated[DeadLetters, BeforeValidator(_topic_as_mapping), _TopicOrMapping]


KafkaSinks = Annotated[
    Annotated[tuple[KafkaSink, ...], Field(min_length=1)],
    BeforeValidator(one_as_list),
    OneOrMany,
]


class Sink(Strict):
    kafka: KafkaSinks = ()
    delta: DeltaSinks = ()
    dead_letter: DeadLetter | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Sink:
        if not (self.kafka or self.delta):
            raise ValueError("expected `kafka`, `delta` or both: a pipeline writes something")
        require_unique("target topics", self.topic_names)
        return self

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Return the target topics, followed by the dead-letter topic if there is one."""
        rows = [topic for sink in self.kafka for topic in sink.topic_names]
        return tuple(rows if self.dead_letter is None else [*rows, self.dead_letter.topic])
