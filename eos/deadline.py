"""How long a wait may still last: the one clock that every loop around the network asks."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point on the monotonic clock. Correctness never depends on it, only how long we wait."""

    at: float

    @classmethod
    def after_ms(cls, timeout_ms: float) -> Deadline:
        return cls(time.monotonic() + timeout_ms / 1000)

    @property
    def left_ms(self) -> int:
        """Milliseconds left, never negative."""
        return max(0, int((self.at - time.monotonic()) * 1000))

    @property
    def has_passed(self) -> bool:
        return time.monotonic() >= self.at

    def at_most_ms(self, limit_ms: int) -> int:
        """What one step may take: its own limit, or what is left if that is less."""
        return min(limit_ms, self.left_ms)


class Backoff:
    """Waits between two tries: doubles from `first_ms` to `most_ms`, with jitter.

    The jitter matters: many writers that were refused together (19, while the coordinator adds
    their partitions one by one) would otherwise come back together for ever.
    """

    __slots__ = ("_most_ms", "_next_ms")

    def __init__(self, first_ms: float = 10, most_ms: float = 1000) -> None:
        self._next_ms = first_ms
        self._most_ms = most_ms

    def next_s(self, deadline: Deadline) -> float:
        """Seconds to wait before the next try, within what the deadline leaves."""
        wait_ms = self._next_ms * random.uniform(0.5, 1.5)
        self._next_ms = min(self._most_ms, self._next_ms * 2)
        return deadline.at_most_ms(int(wait_ms) + 1) / 1000

    def sleep(self, deadline: Deadline) -> None:
        time.sleep(self.next_s(deadline))  # never longer than the deadline leaves
