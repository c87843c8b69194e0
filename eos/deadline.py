"""Deadlines and retry pauses, which bound every loop around a network request."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A point in time on the monotonic clock, in seconds. It limits waits; correctness never
    depends on it."""

    at: float

    @classmethod
    def after_ms(cls, timeout_ms: float) -> Deadline:
        return cls(time.monotonic() + timeout_ms / 1000)

    @property
    def left_ms(self) -> int:
        """Return the milliseconds left, never negative."""
        return max(0, int((self.at - time.monotonic()) * 1000))

    @property
    def has_passed(self) -> bool:
        return time.monotonic() >= self.at

    def at_most_ms(self, limit_ms: int) -> int:
        """Return the time limit of one step in ms: its own limit, or the time left if that is
        less."""
        return min(limit_ms, self.left_ms)


class Backoff:
    """The pauses between retries: each is twice as long as the last, from `first_ms` up to
    `most_ms`, with jitter.

    Without jitter, many writers that are rejected together would retry together again and again.
    That happens with NOT_ENOUGH_REPLICAS, while the coordinator adds their partitions one by one.
    """

    __slots__ = ("_most_ms", "_next_ms")

    def __init__(self, first_ms: float = 10, most_ms: float = 1000) -> None:
        self._next_ms = first_ms
        self._most_ms = most_ms

    def next_s(self, deadline: Deadline) -> float:
        """Return the seconds to wait before the next retry, at most until the deadline."""
        wait_ms = self._next_ms * random.uniform(0.5, 1.5)
        self._next_ms = min(self._most_ms, self._next_ms * 2)
        return deadline.at_most_ms(int(wait_ms) + 1) / 1000

    def sleep(self, deadline: Deadline) -> None:
        time.sleep(self.next_s(deadline))  # never past the deadline
