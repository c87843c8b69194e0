"""The lag of a run as text; while it works off a backlog, with a bar and the time that is left:

    lag 31,400,000 offsets [######----] 62 %, 3 min left

A lag is a backlog if it would take more than half a minute to work it off. A run that keeps up has
some lag, too, since records arrive during each micro-batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_BEGINS_S, _ENDS_S = 30.0, 5.0  # apart, so that the bar doesn't come and go
_COMMITS = 20
_CELLS = 10
_HOURS_MAX = 99


class Backlog:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._commits: deque[tuple[float, int]] = deque(maxlen=_COMMITS)
        self._lag = (clock(), 0)  # the newest lag, and since when it is known
        self._peak: tuple[float, int] | None = None  # the largest lag of the present backlog

    def committed(self, offsets: int) -> None:
        self._commits.append((self._clock(), offsets))

    def text(self, lag: int | None) -> str:
        """Return the lag as text, or "" for an unknown one.

        `lag` is that after the last micro-batch, so it stays the same until the next one ends."""
        if lag is None:
            return ""
        if lag != self._lag[1]:
            self._lag = (self._clock(), lag)
            self._follow()
        text = f"lag {lag:,} offsets"
        left_s = self._left_s()
        if self._peak is None or left_s is None:
            return text
        share = 1 - lag / self._peak[1]
        done = int(share * _CELLS)
        bar = "#" * done + "-" * (_CELLS - done)
        return f"{text} [{bar}] {int(share * 100)} %, {_about(left_s)} left"

    def _follow(self) -> None:
        """Note whether the newest lag begins, enlarges or ends a backlog."""
        at, lag = self._lag
        needed_s = self._needed_s(lag)
        if self._peak is not None and needed_s is not None and needed_s < _ENDS_S:
            self._peak = None
        elif (self._peak is not None and lag > self._peak[1]) or (
            self._peak is None and needed_s is not None and needed_s > _BEGINS_S
        ):
            self._peak = (at, lag)

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
