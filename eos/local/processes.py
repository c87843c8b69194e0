"""How do launcher, JVM and driver end together, and how do they exchange pid and address?

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
EXIT_PARENT_DIED = 5  # errors.Recovery.RESTART: the environment failed; a restart may succeed

# Starting a broker and loading its records take less time. If they fail, the launcher ends the
# driver.
ADDRESS_S_MAX = 600
_ADDRESS_POLL_S = 0.02

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.2


def end_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Let the kernel signal this process when the thread that forked it ends (Linux only).

    It is suitable for `preexec_fn`. On other systems it does nothing, and only the pollers remain.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def announce() -> None:
    """Write the driver's pid for the launcher, so that it signals Python and not the JVM.

    Without a launcher, such as under a cluster's own spark-submit, the variable is missing and this
    does nothing.
    """
    path = os.environ.get(DRIVER_PID_FILE)
    if not path:
        return
    unfinished = Path(f"{path}.{os.getpid()}")
    unfinished.write_text(f"{os.getpid()}\n", encoding="ascii")
    unfinished.replace(path)


def die_with_parent() -> None:
    """End this process at once (exit 5) when its parent JVM or the launcher above it has died.

    A driver without a JVM can neither commit nor abort. Its open transaction times out, or the next
    startup fences it. This function polls. The kernel's signal would follow the JVM *thread* that
    forked us, and that thread may end although the JVM lives.
    """
    parent, lock = os.getppid(), os.environ.get(LAUNCHER_LOCK, "")

    def watch() -> None:
        while os.getppid() == parent and not (lock and _is_free(Path(lock))):
            time.sleep(_POLL_S)  # for as long as this process lives
        parent_name = "launcher" if os.getppid() == parent else "JVM"
        last_words(f"eos: the {parent_name} of this driver died, so the driver exits\n")
        os._exit(EXIT_PARENT_DIED)

    threading.Thread(target=watch, name="eos-parent-watch", daemon=True).start()


def last_words(text: str) -> None:
    """Write to stderr if this does not block.

    stderr may be a pipe to a process that died or stopped reading, where a write would hang."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, text.encode())


def await_address(file: Path, is_stopping: Callable[[], bool]) -> str:
    """Wait for the address of the launcher's broker. Return "" if asked to stop meanwhile."""
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
        time.sleep(_ADDRESS_POLL_S)  # the check above bounds this wait
    return file.read_text(encoding="ascii")


def _is_free(lock: Path) -> bool:
    try:
        return not is_held(lock)
    except OSError:
        return False  # a failing file system proves nothing, so assume that the launcher lives
