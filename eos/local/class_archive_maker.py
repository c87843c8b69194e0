"""Makes one class-data archive: `python archive_maker.py WORK PREFIX -- COMMAND...`.

The command is a JVM that reads WORK/classes and writes WORK/archive (about ten seconds for the
broker, half a minute for Spark). This runs in the background, at the lowest priority and detached
from who asked for it; standard library only. What comes out is put into place whole:

    the machine or the JVM dies   -> WORK stays, and for a day nobody tries again
    the JVM refuses               -> the same, and WORK/log says why
    it is made                    -> PREFIX-CRC.jsa is there, WORK and archives beyond the newest go
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

KEPT = 3  # archives of one program: each checkout and each Java has its own
TRIED_S = 24 * 3600.0  # as long as a failed attempt is not repeated
_MAKE_S_MAX = 900.0
_CHUNK = 1 << 20


def crc_of(path: Path) -> str:
    """About 3 GB a second: cheap enough for each start, and a damaged archive can crash a JVM."""
    crc = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return f"{crc:08x}"


def is_old(work: Path) -> bool:
    return time.time() - work.stat().st_mtime > TRIED_S


def make(work: Path, prefix: Path, command: list[str]) -> bool:
    unfinished = work / "archive"
    if not _dump(command, work / "log") or not unfinished.exists():
        unfinished.unlink(missing_ok=True)  # the log is enough
        return False
    # On the disk before it has its name, or a power cut could leave holes behind a good name.
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
    """Of this program. Who still maps a removed archive keeps it until it ends."""
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
        return path.stat().st_mtime  # set anew by each use
    except OSError:
        return 0.0


def main(arguments: list[str]) -> int:
    if os.fork():
        return 0  # who asked waits for this, and is left without a child
    os.nice(19)
    return 0 if make(Path(arguments[0]), Path(arguments[1]), arguments[3:]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
