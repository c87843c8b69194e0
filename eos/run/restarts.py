"""Restart the pipelines of a process after failures, and choose the exit code of the process.

Only failures of the environment (exit code 5) are met with a restart. All others would meet the
same error again, or fence the instance that took over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eos.errors import Recovery
from eos.observe import events

PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
_DOUBLINGS_MAX = 6  # 64 s, more than the longest pause
# From the best exit code to the worst. A supervisor restarts the process after 5, so 5 must not
# hide a code after which a restart does harm (3) or does not help (2, 4). 4 is the worst, because
# only an operator can fix its cause.
_BEST_FIRST = (
    0,
    Recovery.RESTART.value,
    Recovery.USAGE.value,
    Recovery.FENCED.value,
    Recovery.STOP.value,
)


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of a process whose pipelines ended with these codes."""
    return max(codes, key=_BEST_FIRST.index, default=0)


def pause_s(failures: int) -> float:
    """Return the pause before a restart. `failures` is their number since the last commit."""
    return min(PAUSE_S_MAX, PAUSE_S_MIN * (1 << min(failures - 1, _DOUBLINGS_MAX)))


class Progress:
    """How far the runs of one pipeline got. It is called with each event of a run."""

    def __init__(self) -> None:
        self.has_started = False  # a run owned the pipeline, and began its query
        self.failures = 0  # since the last commit

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.PipelineStarted():
                self.has_started = True
            case events.MicroBatchCommitted():
                self.failures = 0


def run_with_restarts(
    attempt: Callable[[], None],
    progress: Progress,
    *,
    report: Callable[[BaseException], int],
    may_restart: Callable[[], bool],
    pause: Callable[[float], bool],
) -> int:
    """Call `attempt` until it returns, or fails for good. Return the exit code.

    `report` logs an error and returns its exit code. `may_restart` is asked after an error with
    exit code 5. `pause` waits for some seconds, and returns whether a stop was requested meanwhile.
    """
    while True:
        try:
            attempt()
            return 0
        # SystemExit: code of the user that calls `sys.exit` ends its own pipeline only.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - other pipelines continue
            code = report(error)
        if code != Recovery.RESTART.value or not may_restart():
            return code
        progress.failures += 1
        if pause(pause_s(progress.failures)):
            return 0
