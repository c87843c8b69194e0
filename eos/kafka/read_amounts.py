"""The number of records and bytes that were read from each topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReadAmounts:
    """Records, and bytes of their record batches as they are in the log, by topic.

    Transaction markers and aborted record batches do not count."""

    records: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: ReadAmounts) -> ReadAmounts:
        return ReadAmounts(self.records + other.records, self.bytes + other.bytes)
