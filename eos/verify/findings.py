"""The findings of a verification: a bounded number of each kind, and the count of all."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field

from eos.finding import Finding, FindingKind
from eos.kafka.api import TopicPartition

KEPT_MAX = 100  # the smallest ones; all are counted


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

    kept: dict[FindingKind, list[Finding]] = field(
        default_factory=lambda: {kind: [] for kind in FindingKind}
    )
    counts: Counter[FindingKind] = field(default_factory=Counter)
    _stretches: dict[tuple[str, TopicPartition], Stretch] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
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
            where = f"{at}: offsets {stretch.first} to {stretch.last}"
            self.add(
                Finding(
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
