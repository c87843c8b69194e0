"""The supervisor process of an embedded broker node. It stops the node when nobody uses it.

A supervisor starts the node's JVM, and stops it when the cluster has no user any more. It is run as
`python supervisor.py NODE_DIR -- COMMAND...` and uses the standard library only. The JVM inherits
its umask, which keeps their files private.

Each user of the broker holds a shared lock on `users` in the parent folder. The kernel releases a
lock when its holder dies, even by SIGKILL. So:

    a user dies in any way         -> its shared lock is released. If it was the last one, the
                                      supervisor gets the exclusive lock and stops the JVM
    the supervisor gets a SIGKILL  -> the kernel kills the JVM (Linux). The JVM holds the node's
                                      lock through an inherited descriptor until it has ended
    a file `keep` exists           -> the broker keeps running without users

A user takes its lock before it starts a supervisor. So a new broker never looks unused.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

# Keys of state.json. They must not change: a broker of an earlier release, which may still run,
# wrote its state with them.
SUPERVISOR, BROKER = "minder_pid", "broker_pid"
EXIT_HELD = 75  # another supervisor runs this node
POLL_S = 0.1
TAKE_TRIES, TAKE_PAUSE_S = 50, 0.02
GRACE_S = 10.0

_asked_to_stop = False


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    global _asked_to_stop
    _asked_to_stop = True


def _end_with_supervisor() -> None:
    # A copy of eos.local.processes.end_with_parent: this file imports nothing of eos, so that a
    # supervisor starts in 20 ms.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def _acquire(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _acquire_patiently(descriptor: int) -> bool:
    """Take the node's lock, with retries for a second. Return False if another supervisor has it.

    The retries are needed because a process that only checks whether the node runs also holds the
    lock for a moment."""
    for _ in range(TAKE_TRIES):
        if _acquire(descriptor):
            return True
        time.sleep(TAKE_PAUSE_S)  # TAKE_TRIES bounds it
    return False


def _is_forgotten(users: int, keep: Path) -> bool:
    """Return whether the broker has neither a user nor a `keep` file, so that it must stop.

    If so, the exclusive lock on the file `users` is now held. `keep` is checked a second time with
    that lock. Without the second check, this race would stop a broker that must keep running:

    1. The supervisor finds no `keep`.
    2. The last user writes `keep` and releases its shared lock.
    3. The supervisor gets the exclusive lock and stops the broker.
    """
    if keep.exists() or not _acquire(users):
        return False
    if keep.exists():
        fcntl.flock(users, fcntl.LOCK_UN)
        return False
    return True


def _write_state(node: Path, broker_pid: int) -> None:
    unfinished = node / "state.json.new"
    unfinished.write_text(json.dumps({SUPERVISOR: os.getpid(), BROKER: broker_pid}))
    unfinished.replace(node / "state.json")


def _stop(broker: subprocess.Popen[bytes]) -> None:
    broker.terminate()
    try:
        broker.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        broker.kill()
        broker.wait()


def main(arguments: list[str]) -> int:
    node, command = Path(arguments[0]), arguments[2:]
    signal.signal(signal.SIGTERM, _on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lock = os.open(node / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    if not _acquire_patiently(lock):
        return EXIT_HELD
    users = os.open(node.parent / "users", os.O_RDWR | os.O_CREAT, 0o666)
    keep = node.parent / "keep"
    with (node / "console.log").open("wb") as console:
        broker = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            pass_fds=[lock],
            preexec_fn=_end_with_supervisor,  # noqa: PLW1509 - this process has one thread
        )
    _write_state(node, broker.pid)
    while broker.poll() is None:
        if _asked_to_stop or _is_forgotten(users, keep):
            _stop(broker)
            return 0
        time.sleep(POLL_S)  # for as long as the broker lives
    return broker.returncode if broker.returncode > 0 else 128 - broker.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
