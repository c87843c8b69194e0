"""Policy that says which verdicts drop, accept or reject a record, or end the run.

A verdict is the result of comparing a record's sequence number with the state of its producer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from eos.producers.state import VERDICTS, Rules, Verdict

# The code of a row is the index of its verdict in VERDICTS. UNSTAMPED is the code of a row that
# lacks the producer id, epoch or sequence, or has a number outside its valid range.
UNSTAMPED = len(VERDICTS)
NAMES = (*(verdict.value for verdict in VERDICTS), "unstamped")
# Dedup drops a record with one of these two verdicts. DUPLICATE: the record was provably accepted
# before. FENCED: a record of a newer epoch of its producer arrived before it.
DROPPED = tuple(VERDICTS.index(each) for each in (Verdict.DUPLICATE, Verdict.FENCED))
# Verdicts that end the run by default, each with the configuration key that changes this.
OPTIONS: Mapping[str, str] = {
    "gap": "on_gap",
    "late": "on_late",
    "unknown_producer": "on_unknown",
    "unstamped": "on_unstamped",
}


def rule_of(verdict: str) -> str:
    """Return the rule name in the `eos.rule` header of a dead letter with this verdict.

    Dedup does not store the sequence number of a dead letter as accepted. So the record is not
    dropped as a duplicate if it is replayed."""
    return f"dedup_{verdict}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Action of a pipeline for each verdict of dedup.

    A record with a verdict in `refused` ends the run, and one in `dead` becomes a dead letter. Both
    sets have keys of OPTIONS. If no record of a producer is accepted for `forget_ms`, its state is
    removed, and the producer counts as unknown.

    `window` is for `scope: producer`, in which a producer's sequence spans several partitions. A
    sequence number must be less than `window` above the lowest missing number. With
    `scope: partition` it is 0."""

    rules: Rules
    forget_ms: int
    refused: frozenset[str] = field(default_factory=frozenset)
    dead: frozenset[str] = field(default_factory=frozenset)
    window: int = 0

    def accepting_gaps(self) -> Policy:
        """Return a copy that accepts records with the verdict `gap`.

        It is for the micro-batch for which an operator ran `eos recover --accept-gap`."""
        rules = replace(self.rules, accepts=self.rules.accepts | {Verdict.GAP})
        return replace(self, rules=rules, refused=self.refused - {"gap"}, dead=self.dead - {"gap"})

    def codes(self, names: Collection[str]) -> tuple[int, ...]:
        return tuple(at for at, name in enumerate(NAMES) if name in names)

    def __post_init__(self) -> None:
        invalid = (self.refused | self.dead) - OPTIONS.keys() | self.refused & self.dead
        if invalid or self.forget_ms < 1 or self.window < 0:
            raise ValueError(
                f"no policy: {sorted(invalid)}, forget_ms={self.forget_ms}, window={self.window}"
            )
