"""What the parts of a file have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field

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


class Strict(BaseModel):
    """Every part of a file: unknown keys are refused, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )


def _form(value: Any) -> str | None:
    if isinstance(value, str):
        return WORD
    return MAPPING if isinstance(value, dict | BaseModel) else None


def word_or_mapping(expected: str) -> Discriminator:
    """For a value that is written as a text, tagged `WORD`, or as a mapping, tagged `MAPPING`."""
    return Discriminator(_form, custom_error_type="form", custom_error_message=expected)
