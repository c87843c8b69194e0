"""How far a run has worked off its source: the lag, the part that is done, and the time left.

The progress line shows them as `lag 31,400,000 offsets`, a bar, and `62 %, 3 min left`. A run
without end has a bar only while it works off a backlog: a lag that would take more than half a
minute. A run that keeps up has some lag, too, since records arrive during each micro-batch. A run
that ends on its own has a bar from its first micro-batch on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

_BEGINS_S, _ENDS_S = 30.0, 5.0  # apart, so that the bar doesn't come and go
_COMMITS = 20
_HOURS_MAX = 99


class Remaining(NamedTuple):
    """The lag as a text, the share of the whole that is done, and the time left as a text.

    `share` is None if no bar is drawn. `left` is empty while the time is unknown."""

    lag: str = ""
    share: float | None = None
    left: str = ""


class Backlog:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.is_bounded = False
        self._clock = clock
        self._commits: deque[tuple[float, int]] = deque(maxlen=_COMMITS)
        self._lag = (clock(), 0)  # the newest lag, and since when it is known
        self._peak: tuple[float, int] | None = None  # the largest lag of the present backlog
        self._began: float | None = None  # when the first attempt began
        self._total = 0  # offsets that this run has committed

    def begin(self) -> None:
        """Note the begin of an attempt."""
        if self._began is None:
            self._began = self._clock()

    def committed(self, offsets: int) -> None:
        self._commits.append((self._clock(), offsets))
        self._total += offsets

    def remaining(self, lag: int | None) -> Remaining:
        """Return how much is left of a lag; nothing if the lag is unknown.

        `lag` is that after the last micro-batch, so it stays the same until the next one ends."""
        if lag is None:
            return Remaining()
        if lag != self._lag[1]:
            self._lag = (self._clock(), lag)
            self._follow()
        text = f"{lag:,} offsets left" if self.is_bounded else f"lag {lag:,} offsets"
        left_s = self._left_s()
        if self._peak is None or (left_s is None and not self.is_bounded):
            return Remaining(text)
        share = max(0, self._peak[1] - lag) / self._peak[1]
        return Remaining(text, share, "" if left_s is None else f"{_about(left_s)} left")

    def _follow(self) -> None:
        """Note whether the newest lag begins, enlarges or ends a backlog."""
        at, lag = self._lag
        if self.is_bounded:
            self._follow_bounded(at, lag)
            return
        needed_s = self._needed_s(lag)
        if self._peak is not None and needed_s is not None and needed_s < _ENDS_S:
            self._peak = None
        elif (self._peak is not None and lag > self._peak[1]) or (
            self._peak is None and needed_s is not None and needed_s > _BEGINS_S
        ):
            self._peak = (at, lag)

    def _follow_bounded(self, at: float, lag: int) -> None:
        """Note the whole of a bounded run. If the lag is first known after some micro-batches,
        their offsets are part of it."""
        if self._peak is None or lag > self._peak[1]:
            began = at if self._began is None else self._began
            self._peak = (began, lag + self._total)

    def _needed_s(self, lag: int) -> float | None:
        """Return how long the commits of so many offsets take, unless more arrive meanwhile."""
        if len(self._commits) < 2:
            return None
        passed_s = self._commits[-1][0] - self._commits[0][0]
        offsets = sum(offsets for _, offsets in list(self._commits)[1:])
        return lag * passed_s / offsets if offsets else None

    def _left_s(self) -> float | None:
        """Return the time until the lag is 0, if it goes on to shrink as it has since its peak.

        That counts the records that arrive meanwhile. Return None while it does not shrink."""
        at, lag = self._lag
        if self._peak is None or lag >= self._peak[1]:
            return None
        left_s = lag * (at - self._peak[0]) / (self._peak[1] - lag)
        return max(0.0, left_s - (self._clock() - at))


def _about(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours > _HOURS_MAX:
        return f"over {_HOURS_MAX} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"
