"""The keys of `dedup: {producer: ...}`, which drops records that an upstream sent twice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from eos.config.base import KAFKA_COLUMNS, DurationMs, Identifier, Strict

if TYPE_CHECKING:
    from eos.config.source import Source

FIELD_PATTERN = (
    r"^(header\([A-Za-z0-9_.:-]{1,200}\)"
    r"|value\([A-Za-z_]\w*(\.[A-Za-z_]\w*)*\)"
    r"|[A-Za-z_][A-Za-z0-9_]{0,99})$"
)
# `header(NAME)`, `value(PATH)` of JSON, `key`, or the name of a column of the source's JSON value.
StampField = Annotated[str, Field(pattern=FIELD_PATTERN)]
Answer = Literal["fail", "accept"]
Refusing = Literal["fail", "accept", "dead_letter"]
WINDOW_RECORDS, WINDOW_RECORDS_MAX = 100_000, 1_000_000
_RULES = ("dedup_gap", "dedup_late", "dedup_unstamped")  # names of dedup's dead letters
_CALL = re.compile(r"(header|value)\((.*)\)")


def _a_week() -> int:
    return 7 * 86_400_000


WRAPS_AT_MAX = 2**32


def _can_wrap(declared: object) -> object:
    """Reject a `wraps_at` above 2^32, so that distances between numbers fit into 64 bits."""
    if isinstance(declared, int) and declared > WRAPS_AT_MAX:
        raise ValueError(
            f"expected a `wraps_at` of at most {WRAPS_AT_MAX} (32 bits), got `{declared}`. If the "
            "counter has 64 bits and begins at 0, remove `wraps_at`: a million records a second "
            "take 146,000 years to reach 2^62. A record with a number of 2^62 or more counts as "
            "unstamped"
        )
    return declared


class ProducerStamp(Strict):
    """The places of a record's producer id, epoch and sequence number.

    The id is any text; epoch and sequence are whole numbers below 2^62 in decimal digits. With
    `wraps_at`, 0 follows `wraps_at` - 1; without it, a sequence never wraps.
    """

    id: StampField
    epoch: StampField
    sequence: StampField
    wraps_at: Annotated[
        Annotated[int, Field(ge=2**16, le=WRAPS_AT_MAX), BeforeValidator(_can_wrap)] | None,
        Field(default=None),
    ] = None


class Dedup(Strict):
    """Deduplication by the sequence numbers of producers.

    A record is dropped and counted if it is proven to have been accepted before, or if a newer
    instance replaced its producer. Other records that are not the next in sequence are handled by
    these keys:

    - `on_gap`: above the next number;
    - `on_late`: below the next number, and not proven to be a duplicate;
    - `on_unknown`: a producer's first record, with a number other than 0;
    - `on_unstamped`: no readable stamp.

    `scope: partition`: all records of a producer are in one partition, in the order they were sent.
    `producer`: they may be spread over partitions and topics, and be read in any order; `window`
    bounds how far a record may be above the lowest missing number.

    `verdict` names a column that receives each row's dedup result. With `scope: producer`,
    `validate_first: true` validates records before they are written, in every micro-batch: for an
    upstream that resends often. `scope: partition` always does.
    """

    producer: ProducerStamp
    scope: Literal["partition", "producer"] = "partition"
    window: int | None = Field(default=None, ge=1, le=WINDOW_RECORDS_MAX)
    on_gap: Refusing = "fail"
    on_late: Refusing = "fail"
    on_unknown: Answer = "accept"
    on_unstamped: Refusing = "fail"
    verdict: Identifier | None = None
    forget_after_ms: DurationMs = Field(default_factory=_a_week, alias="forget_after")
    validate_first: bool = False

    @model_validator(mode="after")
    def _has_a_window_that_fits(self) -> Dedup:
        if self.window is not None and self.scope == "partition":
            raise ValueError(
                "expected `scope: producer` with `window`: within a partition, records are in order"
            )
        modulus = self.producer.wraps_at
        if self.window is not None and modulus is not None and self.window > modulus // 4:
            raise ValueError(
                f"expected a `window` of at most a quarter of `wraps_at`, which is {modulus // 4}: "
                "otherwise old numbers could not be distinguished from new ones after a wrap"
            )
        return self

    @property
    def window_records(self) -> int:
        """Return how far a sequence number may be above the lowest missing one.

        Return 0 with `scope: partition`, which has no such window.
        """
        if self.scope == "partition":
            return 0
        modulus = self.producer.wraps_at
        return self.window or min(WINDOW_RECORDS, (modulus or 4 * WINDOW_RECORDS) // 4)

    @property
    def wanting_dead_letters(self) -> list[str]:
        options = ("on_gap", "on_late", "on_unstamped")
        found = [name for name in options if getattr(self, name) == "dead_letter"]
        return [f"`dedup` has `{name}: dead_letter`" for name in found]

    def require_fits(self, source: Source, rules: Sequence[str] = ()) -> None:
        """Raise ValueError if `dedup` conflicts with the source, or a rule has a reserved name.

        `rules` has the names of the rules in `expect`.
        """
        if source.kafka.min_partitions is not None:
            raise ValueError(
                "expected no `min_partitions` with `dedup` by a producer's numbers: it splits a "
                "partition between tasks, but dedup needs all records of a partition in one task, "
                "in order. Remove it; for more tasks, add partitions to the topic"
            )
        reserved = sorted({name.lower() for name in rules} & set(_RULES))
        if reserved:
            raise ValueError(
                f"expected a rule name other than `{reserved[0]}`, which dedup's dead letters use"
            )
        columns = (*KAFKA_COLUMNS, *_columns(source.key), *_columns(source.value))
        if self.verdict is not None and self.verdict.lower() in map(str.lower, columns):
            raise ValueError(
                f"expected a new column name as `dedup.verdict`: the source has a column "
                f"`{self.verdict}`"
            )
        for name in ("id", "epoch", "sequence"):
            _require_readable(source, name, getattr(self.producer, name))


def _require_readable(source: Source, name: str, text: str) -> None:
    """Raise ValueError if an id, epoch or sequence (`name`) can't be read where `text` says.

    Dedup reads them from raw records: from a header, the key or a JSON value, but not from a value
    that must first be decoded from Avro or Protobuf.
    """
    place, is_column = place_of(text)[0], _CALL.fullmatch(text) is None and text != "key"
    coded = _coding(source)
    if coded and place == "value":
        raise ValueError(
            f"expected header(NAME) or key as `dedup.producer.{name}`: `{text}` is in the value, "
            f"which is {coded}, but stamps are read before values are decoded, when only JSON can "
            "be searched. Send the stamp in a header (docs/dedup.md), or deduplicate by columns: "
            "`dedup: {by: [...]}`"
        )
    if is_column and text not in columns_of(source):
        has = ", ".join(f"`{each}`" for each in columns_of(source)) or "none"
        raise ValueError(
            f"expected header(NAME), value(PATH), key or a column of the source's value as "
            f"`dedup.producer.{name}`: the value has no column `{text}` (it has {has})"
        )


def _columns(read: Any) -> tuple[str, ...]:
    return () if isinstance(read, str) else tuple(read.names)


def columns_of(source: Source) -> tuple[str, ...]:
    """Return the columns from which dedup may read a producer's id, epoch or sequence number.

    These are the fields of a JSON value. Return none if the value has another format, if a schema
    id is before it, or if `as` makes its fields one column.
    """
    if isinstance(source.value, str) or source.value.column or source.value.subject:
        return ()
    return source.value.names if source.value.json_schema is not None else ()


def _coding(source: Source) -> str:
    """Return the encoding of the source's value if it is not plain JSON, so that dedup can't search
    the bytes themselves; empty if it can."""
    if isinstance(source.value, str):
        return ""
    if source.value.subject is not None:
        return "JSON after a schema id"
    if source.value.avro_schema is not None:
        return "Avro"
    return "Protobuf" if source.value.protobuf is not None else ""


def place_of(text: str) -> tuple[Literal["header", "value", "key"], str]:
    """Return where dedup reads a producer's id, epoch or sequence number, as `text` declares it.

    The result is ("header", NAME), ("value", PATH) or ("key", ""). A column's name is a path in the
    JSON value.
    """
    call = _CALL.fullmatch(text)
    if call is not None:
        return ("header", call[2]) if call[1] == "header" else ("value", call[2])
    return ("key", "") if text == "key" else ("value", text)
