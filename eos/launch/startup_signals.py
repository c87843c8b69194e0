"""How does a run end if it is asked to stop before its pipeline has started?

It prints one line and ends with exit code 0. A startup imports for seconds in three processes, one
after another: the caller of the launcher, the launcher, the driver. Without a handler, a signal
would end them with a stack trace or without a message. An immediate end is safe, because nothing is
open yet.

Not covered: a signal while a Python interpreter itself starts, before any Python code runs. The
first interpreter of the chain then ends like any program. The later ones inherit blocked signals
(`hold`).

This module is imported first, so it uses only the standard library.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

NUMBERS = (signal.SIGTERM, signal.SIGINT)
STOPPED_EARLY = "eos: asked to stop before it started\n"
_UNSTARTED = ".unstarted"


class UnstartedError(Exception):
    """End of a driver with exit code 0 whose pipeline never ran. Such a run has no result."""


def listen() -> None:
    """Let a signal end this process at once with exit code 0. A held signal does so now."""
    for number in NUMBERS:
        signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)


def listen_quietly() -> None:
    """End without a stack trace on a signal during imports, for commands without a pipeline."""
    for number in NUMBERS:
        signal.signal(number, lambda number, _frame: os._exit(128 + number))


def usual() -> None:
    """Restore Python's default signal handlers for the rest of the program."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def hold() -> None:
    """Block the signals before this process becomes another Python by exec.

    A signal would kill the new interpreter while it starts. Blocked signals wait for its `listen`.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)


def report_unstarted() -> None:
    """Report that the pipeline never ran: on stderr, and to the launcher if there is one."""
    from eos.local.processes import DRIVER_PID_FILE, last_words

    last_words(STOPPED_EARLY)
    pid_file = os.environ.get(DRIVER_PID_FILE)
    if pid_file:
        Path(pid_file + _UNSTARTED).touch()


def was_reported(pid_file: Path) -> bool:
    return Path(f"{pid_file}{_UNSTARTED}").exists()


def _end(_number: int, _frame: FrameType | None) -> None:
    # Raise no exception: code that is importing might treat it as a missing module.
    try:
        report_unstarted()
    finally:
        os._exit(0)
