"""Tests in a pipeline file: records that come in, and the records that go out for them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from eos.config.base import Identifier, Strict, Topic
from eos.config.source import InstantMs


class InputRecord(Strict):
    """As it lies in the source. A mapping, list or number as key or value is its JSON text."""

    key: Any = None
    value: Any = None
    headers: dict[str, str | None] = Field(default_factory=dict)
    topic: Topic | None = None  # the first of the source's
    partition: int = Field(default=0, ge=0)
    offset: int | None = Field(default=None, ge=0)  # its place in the list
    timestamp_ms: InstantMs = Field(default=0, alias="timestamp")


class OutputRecord(Strict):
    """A part of a record that a sink writes: only the keys that are named are compared, and of a
    JSON mapping and of the headers only the fields that are named. With `exact: true`, key, value
    and headers have no other fields; without `headers` the record has none."""

    topic: Topic | None = None
    key: Any = None
    value: Any = None
    headers: dict[str, str | None] = Field(default_factory=dict)
    exact: bool = False


class Case(Strict):
    """One micro-batch. The order of what goes out does not matter: partitions have none. `tables`:
    the rows of those that the steps join."""

    name: str = Field(min_length=1)
    tables: dict[Identifier, tuple[dict[str, Any], ...]] = Field(default_factory=dict)
    input: tuple[InputRecord, ...]
    output: tuple[OutputRecord, ...]
