"""What the parts of a file have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

TOPIC_PATTERN = r"^[a-zA-Z0-9._-]{1,249}$"
Topic = Annotated[str, Field(pattern=TOPIC_PATTERN)]


class Strict(BaseModel):
    """Every part of a file: unknown keys are refused, values never change."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True
    )
