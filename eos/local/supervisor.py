"""Minds one broker process: starts it, and stops it when nobody uses it any more.

It runs as a process of its own (`python minder.py NODE_DIR -- COMMAND...`, standard library only),
between the users of a broker and the JVM. Its umask, which the JVM inherits, keeps their files
private. Who uses the broker holds a shared lock on `users` in the folder above. Locks end with
their holder, even by SIGKILL, so:

    a user dies in any way     -> its shared lock is gone; if it was the last one, the exclusive
                                  lock succeeds here, and the JVM is stopped
    the minder dies by SIGKILL -> the kernel kills the JVM (Linux), which holds the node's lock
                                  through an inherited descriptor until it is really gone
    a file `keep` is there     -> somebody started the broker to stay: it needs no users

A user takes its lock before it starts a minder, so a fresh broker is never mistaken for a
forgotten one.
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

EXIT_HELD = 75  # another minder has this node
POLL_S = 0.1
TAKE_TRIES, TAKE_PAUSE_S = 50, 0.02
GRACE_S = 10.0

_asked_to_stop = False


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    global _asked_to_stop
    _asked_to_stop = True


def _end_with_minder() -> None:
    # The same as eos.local.processes.end_with_parent; this file imports nothing of eos, so that it
    # starts in 20 ms.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_patiently(descriptor: int) -> bool:
    """Who asks whether a node runs holds its lock for a moment: that is no other minder."""
    for _ in range(TAKE_TRIES):
        if _take(descriptor):
            return True
        time.sleep(TAKE_PAUSE_S)  # TAKE_TRIES bounds it
    return False


def _is_forgotten(users: int, keep: Path) -> bool:
    """Nobody uses the broker, and nobody told it to stay.

    The look at `keep` that counts is the one with the lock in hand, because `keep` is written by a
    user, before it lets go. With the first look only, this would stop a broker that is to stay:
        minder: there is no `keep` -> user: writes it, lets go -> minder: takes the lock
    """
    if keep.exists() or not _take(users):
        return False
    if keep.exists():
        fcntl.flock(users, fcntl.LOCK_UN)
        return False
    return True


def _write_state(node: Path, broker_pid: int) -> None:
    unfinished = node / "state.json.new"
    unfinished.write_text(json.dumps({"minder_pid": os.getpid(), "broker_pid": broker_pid}))
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
    if not _take_patiently(lock):
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
            preexec_fn=_end_with_minder,  # noqa: PLW1509 - this process has one thread
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
