"""What upstream sent twice: how records say whose they are and which number they have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from eos.config.base import DurationMs, Strict

if TYPE_CHECKING:
    from eos.config.source import Source

FIELD_PATTERN = (
    r"^(header\([A-Za-z0-9_.:-]{1,200}\)"
    r"|value\([A-Za-z_]\w*(\.[A-Za-z_]\w*)*\)"
    r"|[A-Za-z_][A-Za-z0-9_]{0,99})$"
)
# `header(NAME)`, `value(PATH)` of JSON, `key`, or the name of a column of the source's value.
StampField = Annotated[str, Field(pattern=FIELD_PATTERN)]
Answer = Literal["fail", "accept"]
_CALL = re.compile(r"(header|value)\((.*)\)")


def _a_week() -> int:
    return 7 * 86_400_000


class ProducerStamp(Strict):
    """Where each part stands: the id as any text, epoch and sequence as whole numbers below 2^62,
    in decimal digits. Behind `wraps_at` - 1 comes 0; without it a sequence never ends."""

    id: StampField
    epoch: StampField
    sequence: StampField
    wraps_at: int | None = Field(default=None, ge=2**16, le=2**32)


class Dedup(Strict):
    """A record that is proven to have been accepted before, or comes from a producer that a newer
    one replaced, is dropped and counted. What becomes of the others that are not simply next:
    above what is next (`on_gap`), below it and not proven (`on_late`), the first of a producer and
    not 0 (`on_unknown`), without a stamp that can be read (`on_unstamped`).

    `scope: partition`: all records of a producer in one partition, in the order they were sent.
    """

    producer: ProducerStamp
    scope: Literal["partition"] = "partition"
    on_gap: Answer = "fail"
    on_late: Answer = "fail"
    on_unknown: Answer = "accept"
    on_unstamped: Answer = "fail"
    forget_after_ms: DurationMs = Field(default_factory=_a_week, alias="forget_after")

    def require_fits(self, source: Source) -> None:
        """Raises ValueError with what was expected."""
        if source.kafka.min_partitions is not None:
            raise ValueError(
                "expected no `min_partitions` beside `dedup`: it splits a partition between tasks, "
                "and a producer's records are judged in their order"
            )
        for name in ("id", "epoch", "sequence"):
            text = getattr(self.producer, name)
            if _CALL.fullmatch(text) is None and text != "key" and text not in columns_of(source):
                has = ", ".join(f"`{each}`" for each in columns_of(source)) or "none"
                raise ValueError(
                    f"expected header(NAME), value(PATH), key or a column of the source's value as "
                    f"`dedup.producer.{name}`: `{text}` is no such column (there is {has})"
                )


def columns_of(source: Source) -> tuple[str, ...]:
    """Those that a field may name: of a JSON value whose columns stand for themselves."""
    if isinstance(source.value, str) or source.value.column is not None:
        return ()
    return source.value.names


def place_of(text: str) -> tuple[Literal["header", "value", "key"], str]:
    """Where a field is read: which header, or which path in the value."""
    call = _CALL.fullmatch(text)
    if call is not None:
        return ("header", call[2]) if call[1] == "header" else ("value", call[2])
    return ("key", "") if text == "key" else ("value", text)
