"""Waiting for what another process or thread brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

Found = TypeVar("Found")
WAIT_S_MAX = 600  # a bound, not a measure
_PAUSE_S_MAX = 0.05


class Running(Protocol):
    def poll(self) -> int | None: ...


def wait_until(
    is_met: Callable[[], Found],
    failure: object = "not in time",
    process: Running | None = None,
    wait_s: float = WAIT_S_MAX,
) -> Found:
    """Return the first true value of `is_met`. Fail if the process ends without it.

    `failure` is the failure's text, or a function that returns it.
    """
    give_up_at, pause_s = time.monotonic() + wait_s, 0.001
    while True:
        # Asked first: the process may meet the condition and then end.
        is_alive = process is None or process.poll() is None
        if found := is_met():
            return found
        if not is_alive or time.monotonic() > give_up_at:
            raise AssertionError(failure() if callable(failure) else failure)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)
