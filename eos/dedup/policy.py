"""What is dropped, what is accepted, and what ends the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from eos.producers.state import VERDICTS, Rules, Verdict

# A row's code is its verdict's place in VERDICTS, or this: it lacks an id or a number, or has one
# that can't be meant.
UNSTAMPED = len(VERDICTS)
NAMES = (*(verdict.value for verdict in VERDICTS), "unstamped")
# Accepted before, proven, or from a producer that was replaced. Nothing else is ever dropped.
DROPPED = tuple(VERDICTS.index(each) for each in (Verdict.DUPLICATE, Verdict.FENCED))
# What ends the run unless the pipeline says something else, and the key that does.
OPTIONS: Mapping[str, str] = {
    "gap": "on_gap",
    "late": "on_late",
    "unknown_producer": "on_unknown",
    "unstamped": "on_unstamped",
}


def rule_of(verdict: str) -> str:
    """Return the rule that a dead letter's header names. The record's number was not accepted, so
    the record may be put back."""
    return f"dedup_{verdict}"


@dataclass(frozen=True, slots=True)
class Policy:
    """`refused`: of OPTIONS, what ends the run; `dead`: what goes to the dead letters. Producers
    that sent nothing for `forget_ms` are unknown. `window`: how far above the lowest missing number
    a record may be, where a producer's numbers are spread over partitions; 0: they are not."""

    rules: Rules
    forget_ms: int
    refused: frozenset[str] = field(default_factory=frozenset)
    dead: frozenset[str] = field(default_factory=frozenset)
    window: int = 0

    def accepting_gaps(self) -> Policy:
        """For a micro-batch that a person lets go on behind records that never came."""
        rules = replace(self.rules, accepts=self.rules.accepts | {Verdict.GAP})
        return replace(self, rules=rules, refused=self.refused - {"gap"}, dead=self.dead - {"gap"})

    def codes(self, names: Collection[str]) -> tuple[int, ...]:
        return tuple(at for at, name in enumerate(NAMES) if name in names)

    def __post_init__(self) -> None:
        odd = (self.refused | self.dead) - OPTIONS.keys() | self.refused & self.dead
        if odd or self.forget_ms < 1 or self.window < 0:
            raise ValueError(
                f"no policy: {sorted(odd)}, forget_ms={self.forget_ms}, window={self.window}"
            )
