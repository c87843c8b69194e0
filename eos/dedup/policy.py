"""Which verdicts drop a record, accept it, send it to the dead letters, or end the run?

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
# Only two verdicts drop a record: it was provably accepted before, or a newer epoch fenced it.
DROPPED = tuple(VERDICTS.index(each) for each in (Verdict.DUPLICATE, Verdict.FENCED))
# Verdicts that end the run by default, each with the configuration key that changes this.
OPTIONS: Mapping[str, str] = {
    "gap": "on_gap",
    "late": "on_late",
    "unknown_producer": "on_unknown",
    "unstamped": "on_unstamped",
}


def rule_of(verdict: str) -> str:
    """Return the rule name for a dead letter's header. The record's sequence number was not
    accepted, so a replay may put the record back."""
    return f"dedup_{verdict}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Action of a pipeline for each verdict.

    The verdicts in `refused` end the run; those in `dead` go to the dead letters. Both name keys of
    OPTIONS. A producer that is idle for `forget_ms` becomes unknown.

    `window` applies to `scope: producer`, where a producer's numbers are distributed over
    partitions: a record may be at most this far above the lowest missing number. 0 means that each
    partition has its own sequence."""

    rules: Rules
    forget_ms: int
    refused: frozenset[str] = field(default_factory=frozenset)
    dead: frozenset[str] = field(default_factory=frozenset)
    window: int = 0

    def accepting_gaps(self) -> Policy:
        """Return the policy for a micro-batch in which an operator accepts missing records."""
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
