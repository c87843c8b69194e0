"""The background process that makes a class-data archive (Java's AppCDS).

It is run as `python class_archive_maker.py WORK PREFIX -- COMMAND...`. The command is a JVM that
reads WORK/classes and writes WORK/archive. This takes about ten seconds for the broker and half a
minute for Spark. The process has the lowest priority, is detached from its caller, and uses the
standard library only. The result is moved into place atomically:

    the machine or the JVM dies   -> WORK remains, and there is no new attempt for a day
    the JVM fails                 -> the same, and WORK/log has the reason
    the archive is complete       -> PREFIX-CRC.jsa exists; WORK and surplus archives are deleted
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

KEPT = 3  # archives to keep of one program: each checkout and each Java may need its own
TRIED_S = 24 * 3600.0  # time after which a failed attempt is repeated
_MAKE_S_MAX = 900.0
_CHUNK = 1 << 20


def crc_of(path: Path) -> str:
    """Return the CRC-32 of a file as text, at about 3 GB per second.

    Each start of a JVM checks it, because a damaged archive could crash the JVM."""
    crc = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"


def is_old(work: Path) -> bool:
    return time.time() - work.stat().st_mtime > TRIED_S


def create_archive(work: Path, prefix: Path, command: list[str]) -> bool:
    unfinished = work / "archive"
    if not _dump(command, work / "log") or not unfinished.exists():
        unfinished.unlink(missing_ok=True)  # only the log is kept
        return False
    # Flush the data before the rename. Otherwise a power cut could leave a named file with holes.
    descriptor = os.open(unfinished, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    unfinished.replace(f"{prefix}-{crc_of(unfinished)}.jsa")
    _forget_old(prefix)
    shutil.rmtree(work, ignore_errors=True)
    return True


def _dump(command: list[str], log: Path) -> bool:
    with log.open("wb") as stream:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=_MAKE_S_MAX,
                preexec_fn=_end_with_maker,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            stream.write(f"{error}\n".encode())
            return False
    return done.returncode == 0


def _end_with_maker() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def _forget_old(prefix: Path) -> None:
    """Delete all but the `KEPT` most recently used archives of a program, and old work folders.

    A JVM that still maps a deleted archive can keep using it."""
    program = prefix.name.partition("-")[0]
    archives = sorted(prefix.parent.glob(f"{program}-*.jsa"), key=_used_at, reverse=True)
    for path in archives[KEPT:]:
        path.unlink(missing_ok=True)
    for work in prefix.parent.glob(f"{program}-*.making"):
        with contextlib.suppress(OSError):
            if is_old(work):
                shutil.rmtree(work, ignore_errors=True)


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime  # each use updates it
    except OSError:
        return 0.0


def main(arguments: list[str]) -> int:
    if os.fork():
        return 0  # the caller waits for this process only; the child continues on its own
    os.nice(19)
    return 0 if create_archive(Path(arguments[0]), Path(arguments[1]), arguments[3:]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
