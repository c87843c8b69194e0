"""What did a verification find, with the first transaction and offset that show it?"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from eos.kafka.api import Identity, TopicPartition

KEPT_MAX = 100  # the smallest ones; all are counted
_LATE = 2**62


class FindingKind(Enum):
    """Severity of a finding. A disagreement is wrong even if other kinds are allowed."""

    WRONG = "disagreement"
    FOREIGN = "foreign"  # records of other producers, which may be intended
    GONE = "out of reach"  # deleted, or unreadable from here: neither right nor wrong


@dataclass(frozen=True, slots=True)
class Witness:
    """The transaction that a finding belongs to."""

    ledger_offset: int
    kind: str
    batch_id: int
    number: int | None
    identity: Identity

    def __str__(self) -> str:
        what = f"micro-batch {self.batch_id}" if self.kind == "attempt" else f"a {self.kind} record"
        again = f", attempt {self.number}" if (self.number or 1) > 1 else ""
        return (
            f"{what}{again} (ledger offset {self.ledger_offset}, producer {named(self.identity)})"
        )


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """One finding. `offset` is the first one that shows it; -1 without a partition."""

    case: str
    message: str
    at: TopicPartition | None = None
    offset: int = -1
    attempt: Witness | None = None
    kind: FindingKind = FindingKind.WRONG

    @property
    def order(self) -> tuple[int, str, int, int, str]:
        """Return the sort key: the oldest transaction first, then the place in the log."""
        told = self.attempt.ledger_offset if self.attempt else _LATE
        topic, partition = self.at or ("", -1)
        return told, topic, partition, self.offset, self.case

    def as_json(self) -> dict[str, Any]:
        one = self.attempt
        return {
            "case": self.case,
            "kind": self.kind.value,
            "message": self.message,
            "topic": self.at.topic if self.at else None,
            "partition": self.at.partition if self.at else None,
            "offset": self.offset if self.offset >= 0 else None,
            "attempt": one
            and {
                "ledger_offset": one.ledger_offset,
                "kind": one.kind,
                "batch_id": one.batch_id,
                "attempt": one.number,
                "producer_id": one.identity.producer_id,
                "epoch": one.identity.epoch,
            },
        }


@dataclass(slots=True)
class Stretch:
    """Offsets of a partition that are out of reach for one reason, joined."""

    first: int
    last: int
    attempts: int = 0
    records: int = 0


@dataclass(slots=True)
class Findings:
    """The findings with the smallest keys of each kind, bounded, and the number of all."""

    kept: dict[FindingKind, list[VerifyFinding]] = field(
        default_factory=lambda: {kind: [] for kind in FindingKind}
    )
    counts: Counter[FindingKind] = field(default_factory=Counter)
    _stretches: dict[tuple[str, TopicPartition], Stretch] = field(default_factory=dict)

    def add(self, finding: VerifyFinding) -> None:
        self.counts[finding.kind] += 1
        kept = self.kept[finding.kind]
        insort(kept, finding, key=lambda each: each.order)
        del kept[KEPT_MAX:]

    def gone(self, case: str, at: TopicPartition, first: int, last: int, records: int = 0) -> None:
        """Add offsets that are out of reach, joined with others of the same reason."""
        known = self._stretches.get((case, at))
        if known is None:
            known = self._stretches[case, at] = Stretch(first, last)
        known.first, known.last = min(known.first, first), max(known.last, last)
        known.attempts += bool(records)
        known.records += records

    def close(self) -> None:
        """Turn the joined offsets into findings, one for each partition and reason."""
        for (case, at), stretch in sorted(self._stretches.items()):
            of = (
                f": {stretch.records:,} records of {stretch.attempts:,} attempts could not be "
                "verified"
                if stretch.records
                else ""
            )
            where = f"{at.topic}-{at.partition}: offsets {stretch.first} to {stretch.last}"
            self.add(
                VerifyFinding(
                    case, f"{where} {_WHY[case]}{of}", at, stretch.first, None, FindingKind.GONE
                )
            )
        self._stretches.clear()


_WHY = {
    "retention": "were removed by retention, or deleted",
    "compaction": "were compacted, so their digest can't be compared",
    "source_retention": "were removed from the source by retention, or deleted",
    "source_compaction": "include offsets that compaction removed from the source",
    "ledger_trimmed": "were trimmed from the ledger, and no audit table has them",
}


def named(identity: Identity) -> str:
    return f"{identity.producer_id}/{identity.epoch}"
