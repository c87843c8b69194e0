"""The base class, types and helpers of the models for pipeline files and profiles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema

from eos.config.literals import DURATION_PATTERN, SIZE_PATTERN, duration_ms, size_bytes
from eos.sql_text import not_a_condition

TOPIC_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"
Topic = Annotated[str, Field(pattern=TOPIC_PATTERN)]
ClusterName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
# A name of a column or step that Spark SQL accepts without backticks.
IDENTIFIER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"
Identifier = Annotated[str, Field(pattern=IDENTIFIER_PATTERN)]

# A subject of a schema registry.
Subject = Annotated[str, Field(min_length=1, max_length=500)]

# Every source row has these columns, however its key and value are decoded.
KAFKA_COLUMNS = (
    "key",
    "value",
    "headers",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)

# Pydantic's tags for values with two forms: a word or a mapping; dedup by a producer or by columns.
# With a tag, pydantic reports only the problems of the form that the file uses. `problems` removes
# the tags from locations, because no file contains them.
WORD, MAPPING = "(a word)", "(a mapping)"
PRODUCER, COLUMNS = "(by a producer)", "(by columns)"


class Strict(BaseModel):
    """Base class of all models of configuration files: immutable, and unknown keys are rejected."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )


def _text(value: object) -> object:
    """Return a boolean or number as text: YAML's `false` and `4` mean `"false"` and `"4"`.

    Kafka and Spark read every setting as text.
    """
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


SettingText = Annotated[
    str,
    BeforeValidator(_text),
    WithJsonSchema({"anyOf": [{"type": kind} for kind in ("string", "number", "boolean")]}),
]


def _form(value: Any) -> str | None:
    if isinstance(value, str):
        return WORD
    return MAPPING if isinstance(value, dict | BaseModel) else None


def word_or_mapping(expected: str, *, any_text: bool = True) -> Discriminator:
    """Return the discriminator of a value that is either a text or a mapping.

    A text gets the tag `WORD`, a mapping the tag `MAPPING`. With `any_text`, the error message also
    suggests quotes, because an unquoted number may be intended as text.
    """
    kind = "text_or_mapping" if any_text else "form"
    return Discriminator(_form, custom_error_type=kind, custom_error_message=expected)


def require_unique(kind: str, names: Iterable[str]) -> None:
    """Raise ValueError if one of the names appears twice. `kind` is a plural for the message."""
    every = list(names)
    twice = sorted({name for name in every if every.count(name) > 1})
    if twice:
        raise ValueError(f"expected unique {kind}, `{twice[0]}` appears twice")


def one_as_list(value: object) -> object:
    """Wrap a single mapping in a list, so that a file may leave out the brackets of a list of one.

    Return any other value unchanged.
    """
    return [value] if isinstance(value, dict) else value


class OneOrMany:
    """JSON Schema of a value that is a list of mappings or a single mapping."""

    @staticmethod
    def __get_pydantic_json_schema__(
        core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        many = handler(core)
        return {"anyOf": [many["items"], many]}


DurationMs = Annotated[
    int,
    BeforeValidator(duration_ms),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["10 minutes"]}),
]

SizeBytes = Annotated[
    int,
    BeforeValidator(size_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": SIZE_PATTERN, "examples": ["64 MiB"]},
                {"type": "integer", "minimum": 1},
            ]
        }
    ),
]


def _condition(text: str) -> str:
    problem = not_a_condition(text)
    if problem:
        raise ValueError(problem)
    return text


# An SQL condition on one row.
Condition = Annotated[str, Field(min_length=1), AfterValidator(_condition)]
