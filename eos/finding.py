"""A finding: one observation that contradicts exactly-once or leaves it unproven, and where it was
made.

`eos audit`, `eos verify` and the report produce findings; each prints the fields that it knows.
Three other classes are no findings. `inspect.startup_stops` has errors of the next startup with
their remedies. A `Check` of `doctor` may report that all is well. A `Problem` of `lint` is in a
file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from eos.kafka.api import Identity, TopicPartition

_AFTER_ALL = 2**62


class FindingKind(Enum):
    """Severity of a finding. Options of `eos verify` allow FOREIGN and GONE, but never WRONG."""

    WRONG = "disagreement"
    FOREIGN = "foreign"  # records of other producers, which may be wanted
    GONE = "out of reach"  # deleted or unreadable, so nothing is proven


@dataclass(frozen=True, slots=True)
class Witness:
    """The transaction to which a finding belongs, by its ledger record."""

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
    """A finding of one `case`. If partition `at` shows it, `offset` is the first offset there; else
    -1."""

    case: str
    message: str
    at: TopicPartition | None = None
    offset: int = -1
    witness: Witness | None = None
    kind: FindingKind = FindingKind.WRONG

    @property
    def ledger_offset(self) -> int:
        """Return the ledger offset of the finding's transaction; -1 if none is known."""
        return self.witness.ledger_offset if self.witness else -1

    @property
    def order(self) -> tuple[int, str, int, int, str]:
        """Return the sort key: the oldest transaction first, then the place in the log."""
        ledger_offset = self.ledger_offset if self.witness else _AFTER_ALL
        topic, partition = self.at or ("", -1)
        return ledger_offset, topic, partition, self.offset, self.case

    def with_ledger_offset(self) -> str:
        """Return the message, followed by the ledger offset of the transaction if that is known."""
        known = f" (ledger offset {self.ledger_offset})" if self.witness else ""
        return f"{self.message}{known}"
