"""The keys of `trigger`: when a micro-batch begins, and when the run ends."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from eos.config.base import DurationMs, Strict
from eos.config.source import KafkaSource

# Triggers that end the run. Each is a key of `trigger`, and an option such as `--available-now`.
Ending = Literal["available_now", "once"]
# Keys of the source that `once` would ignore.
LIMITS = ("max_records", "max_bytes")


class Trigger(Strict):
    """The trigger, one of three.

    `every`: a micro-batch at this interval, without end. `available_now`: process all records that
    exist when the run begins, in micro-batches of at most `max_records`, then end. `once`: process
    all of them in one micro-batch, which is one transaction, then end.
    """

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
        """Raise ValueError if the source has a limit that would be ignored."""
        if self.every_ms is None and source.min_records is not None:
            raise ValueError(
                "expected no `min_records` in the source with a trigger that ends the run: it "
                "reads the existing records and does not wait for more"
            )
        limits = [name for name in LIMITS if name in source.model_fields_set]
        if self.once and limits:
            raise ValueError(
                f"expected no `{limits[0]}` in the source with `once: true`, which reads all "
                f"existing records in one transaction: remove `{limits[0]}`, or use "
                "`available_now: true`, which keeps it"
            )


def every_second() -> Trigger:
    return Trigger.model_validate({"every": "1 second"})


def ending(choice: Ending) -> Trigger:
    return Trigger.model_validate({choice: True})
