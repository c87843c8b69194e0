"""When a micro-batch begins, and whether the run ends."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from eos.config.base import DurationMs, Strict
from eos.config.source import KafkaSource

# What ends by itself: a key of `trigger`, and of the same name an option of a run.
Ending = Literal["available_now", "once"]


class Trigger(Strict):
    """One of these: a micro-batch at an interval, for ever; all that is there when the run begins,
    in as many micro-batches as `max_records` makes of it, and then the end; or all of it in one
    micro-batch, which is one transaction, and then the end."""

    every_ms: DurationMs | None = Field(default=None, alias="every")
    available_now: Literal[True] | None = None
    once: Literal[True] | None = None

    @model_validator(mode="after")
    def _is_one_of_three(self) -> Trigger:
        if [self.every_ms, self.available_now, self.once].count(None) != 2:
            raise ValueError(
                "expected one of `every: 1 second`, `available_now: true` and `once: true`"
            )
        return self

    def require_fits(self, source: KafkaSource) -> None:
        """Raises ValueError where a bound of the file would be read and ignored."""
        if self.once and "max_records" in source.model_fields_set:
            raise ValueError(
                "expected no `max_records` in the source beside `once`, which reads all that is "
                "there in one micro-batch: leave it out, or say `available_now`, which makes as "
                "many of it as `max_records` needs"
            )


def every_second() -> Trigger:
    return Trigger.model_validate({"every": "1 second"})


def ending(word: Ending) -> Trigger:
    return Trigger.model_validate({word: True})
