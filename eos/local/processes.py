"""Coordination of the three processes of a run: launcher, spark-submit's JVM, Python driver.

They end together, and exchange the driver's process id and the embedded broker's address.
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

from eos import log_lines
from eos.errors import UnavailableError
from eos.local.file_locks import is_held

DRIVER_PID_FILE = "EOS_DRIVER_PID_FILE"
_ENDED = ".ended"
LAUNCHER_LOCK = "EOS_LAUNCHER_LOCK"  # a file that the launcher holds locked while it lives
EXIT_PARENT_DIED = 5  # as for errors.Recovery.RESTART: a restart may succeed

# How long the driver waits for the launcher's broker. It is more than the limits of the broker's
# start and of a demo's load. If one of these fails, the launcher ends the driver.
ADDRESS_S_MAX = 1800
_ADDRESS_POLL_S = 0.02

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2


def end_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Let the kernel send a signal to this process when the thread that forked it ends.

    Use it as `preexec_fn` of a child process. It works on Linux only, and does nothing elsewhere.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def announce() -> None:
    """Write the driver's process id to the launcher's file.

    The launcher forwards signals to this process and not to the JVM. Without a launcher, for
    example under a cluster's own spark-submit, this does nothing.
    """
    path = os.environ.get(DRIVER_PID_FILE)
    if not path:
        return
    unfinished = Path(f"{path}.{os.getpid()}")
    unfinished.write_text(f"{os.getpid()}\n", encoding="ascii")
    unfinished.replace(path)


def announce_end(code: int) -> None:
    """Write the driver's exit code for the launcher, just before the driver ends.

    The JVM exits with the same code, but the launcher kills a JVM that takes too long to end."""
    path = os.environ.get(DRIVER_PID_FILE)
    if path:
        with contextlib.suppress(OSError):
            Path(path + _ENDED).write_text(str(code), encoding="ascii")


def announced_end(pid_file: Path) -> int | None:
    """Return the exit code that the driver wrote before it ended; None if it was killed."""
    try:
        return int(Path(f"{pid_file}{_ENDED}").read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def die_with_parent() -> None:
    """Start a thread that ends this driver (exit 5) when its parent JVM or the launcher has died.

    A driver without its JVM can't finish the micro-batch. Its open transaction times out, or the
    next startup fences it. The thread polls: `end_with_parent` would follow the JVM *thread* that
    forked the driver, and that thread may end although the JVM lives.
    """
    parent, lock = os.getppid(), os.environ.get(LAUNCHER_LOCK, "")

    def watch() -> None:
        while os.getppid() == parent and not (lock and _is_free(Path(lock))):
            time.sleep(_POLL_S)  # for as long as this process lives
        parent_name = "launcher" if os.getppid() == parent else "JVM"
        last_words(f"the {parent_name} of this driver died, so the driver exits")
        os._exit(EXIT_PARENT_DIED)

    threading.Thread(target=watch, name="eos-parent-watch", daemon=True).start()


def last_words(message: str) -> None:
    """Write a warning to stderr, unless the write would block.

    stderr may be a full pipe to a process that no longer reads, where a write would hang."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"{log_lines.chosen().line('warning', message, {})}\n".encode())


def await_address(file: Path, is_stopping: Callable[[], bool]) -> str:
    """Wait until the launcher has written the embedded broker's address to `file`; return it.

    Return "" if `is_stopping` becomes true meanwhile. Raise UnavailableError after half an hour."""
    give_up_at = time.monotonic() + ADDRESS_S_MAX
    while not file.exists():
        if is_stopping():
            return ""
        if time.monotonic() > give_up_at:
            timeout_s = ADDRESS_S_MAX
            raise UnavailableError(
                "broker_address_timeout",
                f"the launcher's embedded broker was not ready within {timeout_s} s: {file} does "
                "not exist",
                hint="the launcher writes that file when the broker serves: look for an error in "
                "its output and in `broker.log` below the state root",
            )
        time.sleep(_ADDRESS_POLL_S)  # bounded by `give_up_at`
    return file.read_text(encoding="ascii")


def _is_free(lock: Path) -> bool:
    try:
        # A missing file proves nothing either: a program that deletes old temporary files may have
        # removed it. A launcher that was killed leaves its file.
        return lock.exists() and not is_held(lock)
    except OSError:
        return False  # a failing file system proves nothing, so assume that the launcher lives
