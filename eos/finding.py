"""One observation that contradicts exactly-once, or leaves it unproven, and where it shows.

`eos audit`, `eos verify` and the report produce findings; each prints the fields that it knows.
Three other values are no findings: `inspect.startup_stops` has errors of the next startup with
their remedies, a `Check` of `doctor` may also be fine, and a `Problem` of `lint` is in a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eos.kafka.api import Identity, TopicPartition

_AFTER_ALL = 2**62


class FindingKind(Enum):
    """Severity of a finding. A disagreement is wrong even if other kinds are allowed."""

    WRONG = "disagreement"
    FOREIGN = "foreign"  # records of other producers, which may be intended
    GONE = "out of reach"  # deleted, or unreadable from here: neither right nor wrong


@dataclass(frozen=True, slots=True)
class Witness:
    """The transaction that a finding belongs to, by its ledger record."""

    ledger_offset: int
    kind: str
    batch_id: int
    number: int | None
    identity: Identity

    def __str__(self) -> str:
        what = f"micro-batch {self.batch_id}" if self.kind == "attempt" else f"a {self.kind} record"
        again = f", attempt {self.number}" if (self.number or 1) > 1 else ""
        return f"{what}{again} (ledger offset {self.ledger_offset}, producer {self.identity})"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `offset` is the first one of partition `at` that shows it; -1 without one."""

    case: str
    message: str
    at: TopicPartition | None = None
    offset: int = -1
    witness: Witness | None = None
    kind: FindingKind = FindingKind.WRONG

    @property
    def ledger_offset(self) -> int:
        """Return the ledger offset of the transaction; -1 without one."""
        return self.witness.ledger_offset if self.witness else -1

    @property
    def order(self) -> tuple[int, str, int, int, str]:
        """Return the sort key: the oldest transaction first, then the place in the log."""
        ledger_offset = self.ledger_offset if self.witness else _AFTER_ALL
        topic, partition = self.at or ("", -1)
        return ledger_offset, topic, partition, self.offset, self.case

    def with_ledger_offset(self) -> str:
        """Return the message, with the ledger offset if it is known."""
        known = f" (ledger offset {self.ledger_offset})" if self.witness else ""
        return f"{self.message}{known}"
