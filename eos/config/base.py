"""What the parts of a file have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema

from eos.config.literals import DURATION_PATTERN, duration_ms

TOPIC_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"
Topic = Annotated[str, Field(pattern=TOPIC_PATTERN)]
# A name for a stage or a column, as SQL takes it without quotes.
IDENTIFIER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"
Identifier = Annotated[str, Field(pattern=IDENTIFIER_PATTERN)]

# Every row has these, whatever is made of the bytes.
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

# Which of two forms of a value is meant, so that only its own problems are told. `problems` leaves
# these words out of a place: they stand in no file.
WORD, MAPPING = "(a word)", "(a mapping)"
PRODUCER, COLUMNS = "(by a producer)", "(by columns)"


class Strict(BaseModel):
    """Every part of a file: unknown keys are refused, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )


def _text(value: object) -> object:
    """Settings are texts to Kafka and Spark: `false` and `4` in YAML mean `"false"` and `"4"`."""
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
    """For a value that is written as a text, tagged `WORD`, or as a mapping, tagged `MAPPING`.
    Where any text may be meant, a number without quotes may be one."""
    kind = "text_or_mapping" if any_text else "form"
    return Discriminator(_form, custom_error_type=kind, custom_error_message=expected)


def one_as_list(value: object) -> object:
    """Before a list of mappings, of which one may stand alone."""
    return [value] if isinstance(value, dict) else value


class OneOrMany:
    """The same in the JSON Schema."""

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
