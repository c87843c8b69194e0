"""The keys of a test in a pipeline file: its source records and the expected output."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from eos.config.base import Identifier, Strict, Topic
from eos.config.source import InstantMs


class InputRecord(Strict):
    """A source record. A mapping, list or number as key or value means its JSON text."""

    key: Any = None
    value: Any = None
    headers: dict[str, str | None] = Field(default_factory=dict)
    topic: Topic | None = None  # default: the source's first topic
    partition: int = Field(default=0, ge=0, lt=2**31)
    offset: int | None = Field(default=None, ge=0, lt=2**63)  # default: its position in the list
    timestamp_ms: InstantMs = Field(default=0, alias="timestamp")


class OutputRecord(Strict):
    """The expected part of a record that a sink writes.

    Only the keys given here are compared, and of a JSON mapping and of the headers only the fields
    given. With `exact: true`, key, value and headers must have no other fields; without `headers`
    the record must have none.
    """

    topic: Topic | None = None
    key: Any = None
    value: Any = None
    headers: dict[str, str | None] = Field(default_factory=dict)
    exact: bool = False


class Case(Strict):
    """One test: the input of one micro-batch and its expected output.

    The order of the output does not matter. `tables` has the rows of the tables that the steps
    join.
    """

    name: str = Field(min_length=1)
    tables: dict[Identifier, tuple[dict[str, Any], ...]] = Field(default_factory=dict)
    input: tuple[InputRecord, ...]
    output: tuple[OutputRecord, ...]
