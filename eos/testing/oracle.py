"""Did each come out once? Counts what went in and what came out, and knows nothing else.

Shares no code with what it judges: it takes records, or anything else that can be told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """`lost` should have come out, or more often; `extra` came out more often than it should."""

    expected: int
    found: int
    lost: Counter[Hashable]
    extra: Counter[Hashable]

    @property
    def is_none(self) -> bool:
        return not self.lost and not self.extra

    def __str__(self) -> str:
        return (
            f"{self.expected:,} expected, {self.found:,} found; "
            f"{_difference_text('lost', self.lost)}; {_difference_text('too many', self.extra)}"
        )


def difference(expected: Iterable[Hashable], found: Iterable[Hashable]) -> Difference:
    """Of two bags: the order does not matter, how often something is there does."""
    wanted, there = Counter(expected), Counter(found)
    return Difference(wanted.total(), there.total(), wanted - there, there - wanted)


def require_each_once(expected: Iterable[Hashable], found: Iterable[Hashable]) -> None:
    """Raises AssertionError unless everything that is expected was found, as often, and nothing
    else. Take what makes a record the one that it is: an id in its value, its key, its origin."""
    between = difference(expected, found)
    if not between.is_none:
        raise AssertionError(str(between))


def _difference_text(what: str, bag: Counter[Hashable]) -> str:
    if not bag:
        return f"0 {what}"
    first = ", ".join(repr(each) for each in list(bag)[:_SHOWN_MAX])
    return f"{bag.total():,} {what} ({first}{', ...' if len(bag) > _SHOWN_MAX else ''})"
