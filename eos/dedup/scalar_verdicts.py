"""The verdict on each record with `scope: partition`, one by one: the specification.

This module decides one record after the other, and remembers every accepted number.
`partition_validator` decides many records at once, and keeps smaller states. A test compares the
verdicts of both, and runs this example. Nothing else uses this module. `scalar_producer_scope` is
the specification of `scope: producer`.

The example has one partition and `on_gap: accept`. The last column has the state of the record's
producer: its newest epoch, and the accepted numbers of that epoch.

| offset | producer | epoch | number | verdict | state after the record |
| --- | --- | --- | --- | --- | --- |
| 0 | a | 0 | 0 | appended | epoch 0: 0 |
| 1 | a | 0 | 1 | appended | epoch 0: 0-1 |
| 2 | a | 0 | 1 | duplicate | epoch 0: 0-1 |
| 3 | a | 0 | 4 | gap | epoch 0: 0-1, 4 |
| 4 | a | 0 | 2 | late | epoch 0: 0-1, 4 |
| 5 | a | 1 | 0 | appended | epoch 1: 0 |
| 6 | a | 0 | 5 | fenced | epoch 1: 0 |
| 7 | b | 3 | 7 | unknown_producer | epoch 3: 7 |
| 8 | b | 3 | none | unstamped | epoch 3: 7 |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from eos.producers.state import RANGES_KEPT, UNWRAPPED

Place = tuple[int, int]  # partition and offset


class StampedRecord(NamedTuple):
    """A record in the source. A part of its stamp is None if it is missing or malformed."""

    partition: int
    offset: int
    producer: bytes | None
    epoch: int | None
    number: int | None


@dataclass
class PartitionScope:
    """Verdicts of `scope: partition`: a producer has one sequence per partition.

    After the number `circle` - 1 a sequence continues at 0.
    """

    circle: int = UNWRAPPED
    accepts_gap: bool = True
    # By partition and producer: the newest epoch, and its accepted numbers as they arrived.
    states: dict[tuple[int, bytes], tuple[int, list[int]]] = field(default_factory=dict)
    expected: dict[Place, int] = field(default_factory=dict)  # number expected at each position

    def verdicts(self, records: Iterable[StampedRecord]) -> dict[Place, str]:
        """Return the verdicts by position. Records of a partition must be in offset order."""
        return {each[:2]: self.verdict(each) for each in records}

    def verdict(self, record: StampedRecord) -> str:
        partition, offset, producer, epoch, number = record
        if producer is None or epoch is None or number is None:
            return "unstamped"
        newest, accepted = self.states.get((partition, producer), (-1, []))
        following = (accepted[-1] + 1) % self.circle if epoch == newest else 0
        self.expected[partition, offset] = following
        found = self._compared(number, epoch, newest, accepted)
        if found in ("appended", "unknown_producer") or (found == "gap" and self.accepts_gap):
            manifest = accepted if epoch == newest else []
            self.states[partition, producer] = epoch, [*manifest, number]
        return found

    def _compared(self, number: int, epoch: int, newest: int, accepted: list[int]) -> str:
        if newest < 0:
            return "unknown_producer" if number else "appended"
        if epoch < newest:
            return "fenced"
        if epoch > newest:
            return "gap" if number else "appended"
        following = (accepted[-1] + 1) % self.circle
        if number == following:
            return "appended"
        if (number - following) % self.circle < self.circle // 2:
            return "gap"
        # The number was provably accepted if it is one of the last RANGES_KEPT accepted numbers, or
        # if all numbers from it on were accepted one after the other.
        back = (following - number) % self.circle
        since = [(number + step) % self.circle for step in range(min(back, len(accepted)))]
        is_contiguous = back <= len(accepted) and accepted[-back:] == since
        return "duplicate" if number in accepted[-RANGES_KEPT:] or is_contiguous else "late"

    def state(self, partition: int, producer: bytes) -> str:
        epoch, accepted = self.states[partition, producer]
        return f"epoch {epoch}: {ranges(accepted)}"


def ranges(numbers: Iterable[int]) -> str:
    """Return the numbers as text, with ranges: `0-2, 7` for 0, 1, 2 and 7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, each)) for each in found)
