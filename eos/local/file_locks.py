"""File locks that the kernel drops when their holder dies, however it dies.

Whoever can open a lock file can hold the lock, even without the right to write. So only its owner
can, or the group of a shared folder (`eos.private_files`).

`flock` belongs to the open file: two opens in one process are two holders, and a child process
that is started (not merely forked) does not inherit one, since Python closes its descriptors.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from eos import private_files
from eos.deadline import Deadline
from eos.errors import UnavailableError, UsageError

_PAUSE_S = 0.05
_LOOKS_MAX, _LOOK_S = 200, 0.005
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class FileLock:
    """One holder's view of a lock file. Close it to let go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            private_files.make(path.parent)
            self._fd = private_files.opener(path, os.O_RDWR | os.O_CREAT)
        except PermissionError as error:
            raise UsageError(
                f"this user can't open the lock `{path}`: {error.strerror}",
                hint=private_files.SHARE,
                path=str(path),
            ) from error

    def try_exclusive(self) -> bool:
        return self._try(fcntl.LOCK_EX)

    def try_exclusive_past_looks(self) -> bool:
        """For a lock that only looks share (`is_held`): they last for a moment, and are waited
        for. False: another holder has it exclusively."""
        for _ in range(_LOOKS_MAX):
            if self._try(fcntl.LOCK_EX):
                return True
            if not self._try(fcntl.LOCK_SH):
                return False
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            time.sleep(_LOOK_S)
        return False

    def try_shared(self) -> bool:
        return self._try(fcntl.LOCK_SH)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def is_held(path: Path) -> bool:
    """Does somebody hold this lock exclusively? For a moment this shares it itself."""
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        return not lock.try_shared()
    except OSError as error:
        if has_no_locks(error):
            return False
        raise
    finally:
        lock.close()


def has_no_locks(error: OSError) -> bool:
    """Whether the file system can't lock, as an NFS mount without a lock service."""
    return error.errno in _NO_LOCKS


def acquire_shared(path: Path, deadline: Deadline) -> FileLock:
    lock = FileLock(path)
    while not lock.try_shared():
        _pause(lock, deadline)
    return lock


@contextlib.contextmanager
def exclusive(path: Path, deadline: Deadline) -> Iterator[None]:
    lock = FileLock(path)
    try:
        while not lock.try_exclusive():
            _pause(lock, deadline)
        yield
    finally:
        lock.close()


def _pause(lock: FileLock, deadline: Deadline) -> None:
    if deadline.has_passed:
        lock.close()
        raise UnavailableError(
            f"another process holds `{lock.path}` for too long",
            hint="look for a start or a stop that hangs, end it, and try again",
            path=str(lock.path),
        )
    time.sleep(_PAUSE_S)  # flock has no wait with a deadline
