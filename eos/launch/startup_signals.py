"""The handling of SIGTERM and SIGINT before a run's pipeline has started.

Such a signal prints one line and ends the run with exit code 0. This is safe, because no
transaction is open yet. A startup imports modules for seconds in three Python processes, one after
another: the command, the launcher, the driver. Without a handler, a signal would end them with a
stack trace, or without a message.

A signal that arrives while the first Python interpreter itself starts is not handled: it ends like
any program. The later interpreters start with blocked signals (`hold`).

This module is imported first, so it uses only the standard library.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

NUMBERS = (signal.SIGTERM, signal.SIGINT)
STOPPED_EARLY = "asked to stop before it started"
_UNSTARTED = ".unstarted"


class UnstartedError(Exception):
    """A signal ended the driver before its pipeline ran. The run's exit code is 0."""


def listen() -> None:
    """Let SIGTERM and SIGINT end this process at once with exit code 0.

    A signal that `hold` has blocked until now takes effect here."""
    for number in NUMBERS:
        signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)


def listen_quietly() -> None:
    """Let SIGTERM and SIGINT end this process at once, without a stack trace, with exit code 143 or
    130. This is for commands that run no pipeline."""
    for number in NUMBERS:
        signal.signal(number, lambda number, _frame: os._exit(128 + number))


def usual() -> None:
    """Restore Python's default signal handlers for the rest of the program."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def hold() -> None:
    """Block SIGTERM and SIGINT, before this process starts another Python interpreter by exec.

    Otherwise a signal could kill the new interpreter while it starts. A blocked signal takes effect
    when the new program calls `listen`.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)


def report_unstarted() -> None:
    """Report that no pipeline ran: on stderr, and to the launcher if there is one."""
    from eos.local.processes import DRIVER_PID_FILE, announce_end, last_words

    last_words(STOPPED_EARLY)
    announce_end(0)
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
