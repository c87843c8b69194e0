"""Launcher, JVM and driver: who ends with whom, and what they tell each other.

A child never outlives the process that it works for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from eos.errors import UnavailableError
from eos.local.file_locks import is_held

DRIVER_PID_FILE = "EOS_DRIVER_PID_FILE"
LAUNCHER_LOCK = "EOS_LAUNCHER_LOCK"  # a file that the launcher holds locked while it lives
EXIT_PARENT_DIED = 5  # errors.Recovery.RESTART: broken surroundings, a supervisor may start again

# A broker's start and a load take less, and a launcher in which they fail ends the driver.
ADDRESS_S_MAX = 600
_ADDRESS_POLL_S = 0.02

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2


def end_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Linux: the kernel signals this process when the thread that forked it ends.

    Fit for `preexec_fn`. Elsewhere it does nothing, and the pollers alone do the work.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def announce() -> None:
    """The driver tells its launcher who it is, so that signals reach Python and not the JVM.

    Not guaranteed: that anybody reads it. Without a launcher (a cluster's own spark-submit) the
    variable is missing and this does nothing.
    """
    path = os.environ.get(DRIVER_PID_FILE)
    if not path:
        return
    unfinished = Path(f"{path}.{os.getpid()}")
    unfinished.write_text(f"{os.getpid()}\n", encoding="ascii")
    unfinished.replace(path)


def die_with_parent() -> None:
    """End this process at once (exit 5) when its parent, the JVM of spark-submit, is gone,
    or the launcher above it.

    A driver without a JVM can neither commit nor abort; what is open expires or is fenced by the
    next start. It polls, because the kernel's own signal follows the JVM's *thread* that forked
    us, and would come when that thread ends although the JVM lives.
    """
    parent, lock = os.getppid(), os.environ.get(LAUNCHER_LOCK, "")

    def watch() -> None:
        while os.getppid() == parent and not (lock and _is_free(Path(lock))):
            time.sleep(_POLL_S)  # for as long as this process lives
        who = "launcher" if os.getppid() == parent else "JVM"
        last_words(f"eos: the {who} of this driver died; the driver ends too\n")
        os._exit(EXIT_PARENT_DIED)

    threading.Thread(target=watch, name="eos-parent-watch", daemon=True).start()


def last_words(text: str) -> None:
    """On stderr, if that can be at once: it may be a pipe to a process that is gone, or that reads
    no more and so holds up whoever writes."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, text.encode())


def await_address(file: Path, is_stopping: Callable[[], bool]) -> str:
    """The driver waits for the launcher's broker. Empty if it was asked to stop meanwhile."""
    give_up_at = time.monotonic() + ADDRESS_S_MAX
    while not file.exists():
        if is_stopping():
            return ""
        if time.monotonic() > give_up_at:
            raise UnavailableError(
                f"no broker's address came in {ADDRESS_S_MAX} s (file {file})",
                hint="./spark-submit.sh writes it once its embedded broker serves",
            )
        time.sleep(_ADDRESS_POLL_S)  # another process's progress; bounded above
    return file.read_text(encoding="ascii")


def _is_free(lock: Path) -> bool:
    try:
        return not is_held(lock)
    except OSError:
        return False  # nothing can be told from a failing file system
