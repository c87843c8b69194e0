"""Asked to stop before anything has begun: one line, and the end with exit code 0.

A start imports for seconds, in three processes one after another: whoever calls the launcher, the
launcher, the driver. A signal that nobody listens to yet would end them with a stack trace, or
without a word. Nothing is open then that an end at once could harm.

Not covered: what no Python code can be ahead of, an interpreter that starts itself. The first one
of a chain ends as any program; those after it inherit the signals blocked (`hold`).

Python's own library only: it is imported first.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

NUMBERS = (signal.SIGTERM, signal.SIGINT)
TOLD = "eos: asked to stop before it started\n"
_UNSTARTED = ".unstarted"


class UnstartedError(Exception):
    """The driver ended with 0, and its pipeline never ran: nothing is to be made of such a run."""


def listen() -> None:
    """From here on a signal ends this process at once with exit code 0; one that was held, now."""
    for number in NUMBERS:
        signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)


def listen_quietly() -> None:
    """For what does not run a pipeline: no stack trace while it imports."""
    for number in NUMBERS:
        signal.signal(number, lambda number, _frame: os._exit(128 + number))


def usual() -> None:
    """As it is where nobody listens: the rest of a program looks after itself."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def hold() -> None:
    """Before this process becomes another Python, which would die of a signal while it starts: one
    that comes from here on waits for its `listen`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)


def tell() -> None:
    """That the pipeline never ran: to people, and to the launcher if there is one."""
    from eos.local.processes import DRIVER_PID_FILE, last_words

    last_words(TOLD)
    pid_file = os.environ.get(DRIVER_PID_FILE)
    if pid_file:
        Path(pid_file + _UNSTARTED).touch()


def was_told(pid_file: Path) -> bool:
    return Path(f"{pid_file}{_UNSTARTED}").exists()


def _end(_number: int, _frame: FrameType | None) -> None:
    # No exception: whoever imports might take it for a module that is missing.
    try:
        tell()
    finally:
        os._exit(0)
