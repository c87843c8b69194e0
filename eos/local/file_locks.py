"""File locks between processes (`flock`) that end when their holder dies.

The kernel releases the lock when its holder dies in any way.

A process that can open a lock file can hold its lock, even without write permission. So only the
owner can open it, or the group of a shared folder (`eos.private_files`).

`flock` belongs to the open file, so two opens in one process are two holders. A child process that
is started, not merely forked, inherits no lock, because Python closes its descriptors.
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
    """One holder of a lock file. `close` releases the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            private_files.create_folder(path.parent)
            self._fd = private_files.opener(path, os.O_RDWR | os.O_CREAT)
        except PermissionError as error:
            reason = error.strerror
            raise UsageError(
                "lock_file_denied",
                f"this user can't open the lock file `{path}`: {reason}",
                hint=private_files.SHARE,
                path=str(path),
            ) from error

    def try_exclusive(self) -> bool:
        return self._try(fcntl.LOCK_EX)

    def try_exclusive_past_looks(self) -> bool:
        """Take the exclusive lock; return False if another holder has it exclusively.

        `is_held` in another process takes a shared lock for a moment. Such a check is waited for,
        and does not make this return False."""
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
    """Return whether another holder has this lock exclusively; False if the file does not exist.

    The check takes a shared lock for a moment."""
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
    """Return whether `error` means that the file system supports no locks, such as some NFS."""
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
        path = lock.path
        raise UnavailableError(
            "lock_file_timeout",
            f"timed out waiting for the lock file `{path}`, which another process holds",
            hint=f"a startup or shutdown may hang: find its process with `fuser {path}`, end "
            "it, and retry",
            path=str(lock.path),
        )
    time.sleep(_PAUSE_S)  # poll, because flock can't wait with a deadline
