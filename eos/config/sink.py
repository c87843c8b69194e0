"""Where rows go: topics, and what becomes of a row's columns there."""

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
    Topic,
    one_as_list,
    word_or_mapping,
)
from eos.config.delta_sink import DeltaSinks
from eos.config.protobuf import Protobuf


class CreateTopic(Strict):
    """How a target topic is created where it is absent. An existing topic is left as it is."""

    partitions: int = Field(default=1, ge=1)
    replication: int | None = Field(default=None, ge=1, le=32_767)  # None: as the broker is set up
    config: dict[str, SettingText] = Field(default_factory=dict)


class TopicColumn(Strict):
    """Each row names its topic in a column: one of those that are listed."""

    column: Identifier
    topics: Annotated[tuple[Topic, ...], Field(min_length=1)]


class EncodedFormat(Strict):
    """One JSON object of these columns, in this order; or an Avro record by a schema, or a Protobuf
    message, each field of it out of the column of that name."""

    json_columns: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None, alias="json"
    )
    avro: Avro | None = None
    protobuf: Protobuf | None = None

    @model_validator(mode="after")
    def _is_one_of_three(self) -> EncodedFormat:
        if [self.json_columns, self.avro, self.protobuf].count(None) != 2:
            raise ValueError("expected one of `json`, `avro` and `protobuf`")
        return self


def _no_word(text: str) -> str:
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
    Annotated[Expression, AfterValidator(_no_word), Tag(WORD)]
    | Annotated[EncodedFormat, Tag(MAPPING)],
    word_or_mapping(
        "expected string, an SQL expression, or a mapping with the key json, avro or protobuf"
    ),
]


class KafkaSink(Strict):
    """Where rows go, and as what. Without `key`, `value` and `headers` they are passed on as they
    came; `where` is an SQL condition, and a row for which it is null does not go there."""

    topic: Target
    key: Key | None = None
    value: Value | None = None
    headers: dict[str, Expression] | None = None
    where: Expression | None = None
    create: CreateTopic | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    partitioner: Literal["key", "round_robin"] = "key"
    partition: str | None = Field(default=None, min_length=1)  # a column with the target partition
    timestamp: str | None = Field(default=None, min_length=1)  # a column with the record's time

    @property
    def topic_names(self) -> tuple[str, ...]:
        return self.topic.topics if isinstance(self.topic, TopicColumn) else (self.topic,)

    @property
    def expressions(self) -> Iterator[tuple[tuple[str, ...], str]]:
        """The SQL in it, each with its place."""
        given: dict[tuple[str, ...], object] = {
            ("key",): self.key,
            ("value",): self.value,
            ("where",): self.where,
        }
        given |= {("headers", name): text for name, text in (self.headers or {}).items()}
        yield from ((place, text) for place, text in given.items() if isinstance(text, str))


class DeadLetters(Strict):
    """Where source records go that can't be taken, as they came, with the reason in headers."""

    topic: Topic
    create: CreateTopic | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"


def _topic_as_mapping(value: object) -> object:
    return {"topic": value} if isinstance(value, str) else value


class _TopicOrMapping:
    """In the JSON Schema: a topic may stand alone."""

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
    kafka: KafkaSinks
    delta: DeltaSinks = ()
    dead_letter: DeadLetter | None = None

    @model_validator(mode="after")
    def _names_a_topic_once(self) -> Sink:
        names = self.topic_names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"expected each target topic once, `{twice[0]}` is named twice")
        return self

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Of the rows, then of the dead letters."""
        rows = [topic for sink in self.kafka for topic in sink.topic_names]
        return tuple(rows if self.dead_letter is None else [*rows, self.dead_letter.topic])
