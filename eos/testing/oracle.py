"""The check that each record was written exactly once, by counting expected and found records.

It shares no code with the pipeline that it checks. Records may be any hashable values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between expected and found records.

    `lost` has the records that were found less often than expected, `extra` those that were found
    more often, each with the number by which it differs.
    """

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
    """Return which records were found less or more often than expected. Their order is ignored."""
    wanted, there = Counter(expected), Counter(found)
    return Difference(wanted.total(), there.total(), wanted - there, there - wanted)


def require_each_once(expected: Iterable[Hashable], found: Iterable[Hashable]) -> None:
    """Raise AssertionError unless each record was found exactly as often as it is expected.

    Pass values that identify a record, such as an id in its value, or its key.
    """
    between = difference(expected, found)
    if not between.is_none:
        raise AssertionError(str(between))


def _difference_text(what: str, bag: Counter[Hashable]) -> str:
    if not bag:
        return f"0 {what}"
    first = ", ".join(repr(each) for each in list(bag)[:_SHOWN_MAX])
    return f"{bag.total():,} {what} ({first}{', ...' if len(bag) > _SHOWN_MAX else ''})"
