"""How many records did dedup drop, accept and reject, in total and by producer (`eos audit`)?

The numbers come from the dedup results that the ledger records for each attempt.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_SHOWN, _KEPT_MAX, _GAPS_KEPT_MAX = 20, 10_000, 1_000
_DROPPED = ("duplicate", "fenced")
_ACCEPTED = ("gap", "late", "unknown_producer", "unstamped")


class ProducerResult(NamedTuple):
    """Key of a count: records of one producer, in one source partition, with one verdict."""

    topic: str
    partition: int
    producer: str
    verdict: str


class Gap(NamedTuple):
    """The first record after missing ones of a producer: expected and actual sequence number."""

    topic: str
    partition: int
    producer: str
    epoch: int
    expected: int
    got: int
    offset: int


@dataclass(slots=True)
class Producers:
    """Sums of dedup's results over attempts.

    `verdicts` counts all records. `each` counts them by producer, for the producers that the ledger
    lists: at most a hundred per attempt; `more` counts the unlisted ones. `spans` has the first and
    last offset of the counted records. `states` is the number of stored producer states after the
    newest attempt; -1 if unknown. `gaps` has the newest gaps.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)  # by verdict
    each: Counter[ProducerResult] = field(default_factory=Counter)
    spans: dict[ProducerResult, tuple[int, int]] = field(default_factory=dict)
    expired: int = 0
    more: int = 0
    states: int = -1
    gaps: deque[Gap] = field(default_factory=lambda: deque(maxlen=_GAPS_KEPT_MAX))

    def add(self, dedup: Mapping[str, Any]) -> None:
        """Add the dedup results in the ledger record of an attempt (empty without dedup)."""
        self.verdicts.update(dedup.get("verdicts", {}))
        self.dead_letters.update(dedup.get("dead_letters", {}))
        self.expired += int(dedup.get("expired", 0))
        self.more += int(dedup.get("producers_more", 0))
        self.states = int(dedup.get("states", self.states))
        self.gaps.extend(Gap(*each) for each in dedup.get("gaps", ()))
        for topic, partition, producer, verdict, count, first, last in dedup.get("producers", ()):
            of = ProducerResult(topic, partition, producer, verdict)
            if of not in self.each and len(self.each) >= _KEPT_MAX:
                self.more += 1
                continue
            self.each[of] += count
            before = self.spans.get(of, (first, last))
            self.spans[of] = min(before[0], first), max(before[1], last)

    def lines(self) -> Iterator[str]:
        """Yield the sums as lines of text; no line if dedup validated no record."""
        if not self.verdicts:
            return
        accepted = self.verdicts - self.dead_letters
        others = f"{_counts_text(self.verdicts, _DROPPED)} dropped; "
        others += f"{_counts_text(accepted, _ACCEPTED)} accepted"
        if self.dead_letters:
            others += f"; {_counts_text(self.dead_letters, _ACCEPTED)} to the dead letters"
        yield f"dedup       {self.verdicts['appended']:,} records in sequence; {others}"
        if self.states >= 0:
            yield f"            {self.states:,} states of producers"
        if self.expired:
            yield f"            {self.expired:,} states of idle producers expired"
        for of, count in self.each.most_common(_SHOWN):
            first, last = self.spans[of]
            yield (
                f"producer    {of.producer}, {of.topic}-{of.partition}: {count:,} {of.verdict}, "
                f"offsets {first} to {last}"
            )
        for gap in list(self.gaps)[-_SHOWN:]:
            yield (
                f"gap         {gap.producer}, epoch {gap.epoch}, {gap.topic}-{gap.partition}: "
                f"expected {gap.expected}, got {gap.got}, offset {gap.offset}"
            )
        if len(self.gaps) > _SHOWN:
            yield f"            and {len(self.gaps) - _SHOWN:,} gaps before them (--json)"
        left = max(0, len(self.each) - _SHOWN) + self.more
        if left:
            yield f"            and {left:,} more (--json has those that the ledger lists)"

    def as_json(self) -> dict[str, Any]:
        return {
            "verdicts": dict(self.verdicts),
            "dead_letters": dict(self.dead_letters),
            "expired": self.expired,
            "producers": [
                {**of._asdict(), "records": count, "offsets": list(self.spans[of])}
                for of, count in self.each.most_common()
            ],
            "producers_more": self.more,
            "states": None if self.states < 0 else self.states,
            "gaps": [each._asdict() for each in self.gaps],
        }


def _counts_text(verdicts: Counter[str], names: tuple[str, ...]) -> str:
    found = [f"{verdicts[name]:,} {name}" for name in names if verdicts[name]]
    return ", ".join(found) or "none"
