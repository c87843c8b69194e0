"""Figures of a run that the next ledger record of an attempt contains, for the audit table.

A record is written before its transaction commits, so it has the durations of the micro-batch
before it. Nothing depends on these figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from eos.ledger.record import Ends
from eos.observe.events import MicroBatchCommitted

LEDGER, OFFSETS, END, TABLES = "ledger", "offsets", "end", "tables"


@dataclass(slots=True)
class Measures:
    """`lag_ms` returns the lag that remains after a position; None if it is unknown."""

    lag_ms: Callable[[Ends], int | None] = lambda _: None
    _previous_ms: dict[str, int] = field(default_factory=dict)

    def of_attempt(self, ends: Ends) -> tuple[int | None, Mapping[str, int]]:
        """Return the lag after these ends, and the durations of the micro-batch before."""
        lag_ms = None
        with suppress(Exception):  # it is for display only, so it must not fail the attempt
            lag_ms = self.lag_ms(ends)
        return lag_ms, dict(self._previous_ms)

    def committed(self, event: MicroBatchCommitted) -> None:
        times = {LEDGER: event.ledger_ms, OFFSETS: event.offsets_ms, END: event.end_ms}
        self._previous_ms = {step: round(ms) for step, ms in times.items()}

    def tables_written(self, began: float) -> None:
        """Add the time since `began` (monotonic), in which the driver wrote a micro-batch's rows to
        Delta tables."""
        self._previous_ms[TABLES] = round((time.monotonic() - began) * 1000)
