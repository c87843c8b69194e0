"""How does `eos verify` collect its findings: the first ones of each kind, and their number?"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from eos.finding import Finding, FindingKind
from eos.kafka.api import TopicPartition

KEPT_MAX = 100  # findings to list of each kind; all are counted


@dataclass(slots=True)
class OffsetSpan:
    """The range from the first to the last offset that can't be verified for one reason."""

    first: int
    last: int
    attempts: int = 0
    records: int = 0

    def add(self, first: int, last: int, attempts: int = 1, records: int = 0) -> None:
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.attempts += attempts
        self.records += records


@dataclass(slots=True)
class Findings:
    """The first `KEPT_MAX` findings of each kind, ordered by transaction, and the count of all."""

    listed: dict[FindingKind, list[Finding]] = field(
        default_factory=lambda: {kind: [] for kind in FindingKind}
    )
    counts: Counter[FindingKind] = field(default_factory=Counter)
    _spans: dict[tuple[str, TopicPartition], OffsetSpan] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        listed = self.listed[finding.kind]
        insort(listed, finding, key=lambda each: each.order)
        del listed[KEPT_MAX:]

    def add_all(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    def add_unreachable(
        self, case: str, at: TopicPartition, first: int, last: int, records: int = 0
    ) -> None:
        """Add offsets that can't be verified, for the reason `case`.

        `close` reports one range per partition and reason."""
        span = self._spans.setdefault((case, at), OffsetSpan(first, last))
        span.add(first, last, bool(records), records)

    def close(self) -> None:
        """Add a finding for each range of offsets that can't be verified."""
        for (case, at), span in sorted(self._spans.items()):
            of = (
                f": {span.records:,} records of {span.attempts:,} attempts could not be verified"
                if span.records
                else ""
            )
            place = f"{at}: offsets {span.first} to {span.last}"
            self.add(
                Finding(case, f"{place} {_WHY[case]}{of}", at, span.first, None, FindingKind.GONE)
            )
        self._spans.clear()


_WHY = {
    "retention": "were removed by retention, or deleted",
    "compaction": "were compacted, so their digest can't be compared",
    "source_retention": "were removed from the source by retention, or deleted",
    "source_compaction": "include offsets that compaction removed from the source",
    "ledger_trimmed": "were trimmed from the ledger, and no audit table has them",
}
