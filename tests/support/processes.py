"""What /proc says of the processes of a Spark application."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PATIENCE_S = 300
_TICKS = os.sysconf("SC_CLK_TCK")
_SESSION, _USED, _USED_BY_ENDED = 3, slice(11, 13), slice(13, 15)  # after the state's index 0


def cpu_seconds_of_session(session: int) -> float:
    """CPU time of every process of a session: JVM, driver, workers, and those that ended."""
    ticks = 0
    for stat in filter(None, map(_stat, _processes())):
        if int(stat[_SESSION]) == session:
            ticks += sum(map(int, stat[_USED] + stat[_USED_BY_ENDED]))
    return ticks / _TICKS


def cpu_seconds_of(pid: int) -> float:
    stat = _stat(Path(f"/proc/{pid}"))
    return sum(map(int, stat[_USED])) / _TICKS


def of_session(session: int) -> list[int]:
    """Who belongs to a session now: JVM, driver, and workers, which have groups of their own."""
    found = ((int(process.name), _stat(process)) for process in _processes())
    return [pid for pid, stat in found if stat and int(stat[_SESSION]) == session]


def naming(text: str) -> list[int]:
    """Who has this text in its command line."""
    found = _processes()
    return [int(each.name) for each in found if text.encode() in _read(each / "cmdline")]


def state(pid: int) -> str:
    """R runs, S waits, T is paused, Z has ended; empty if it is gone."""
    return next(iter(_stat(Path(f"/proc/{pid}"))), "")


def stands_still(pid: int) -> bool:
    """Paused, each of its threads: the one that was signalled stands first."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return False
    return state(pid) == "T" and all(_stat(each)[:1] in (["T"], []) for each in threads)


def pause(pid: int) -> None:
    """Returns when none of its threads runs any more. The signal alone does not say that: a thread
    on another core goes on until it hears of it, and a broker answers what comes meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    give_up_at = time.monotonic() + _PATIENCE_S
    while not stands_still(pid):
        assert time.monotonic() < give_up_at, f"process {pid} does not pause"
        time.sleep(0.001)


def workers(variable: str) -> Iterator[Path]:
    """Spark's Python workers that were started with this `NAME=value` in their environment."""
    for process in _processes():
        if b"pyspark.worker" in _read(process / "cmdline") and (
            variable.encode() in _read(process / "environ").split(b"\0")
        ):
            yield process


def peak_mb(process: Path) -> float:
    """The most memory that a process ever had resident; 0 if it has ended."""
    for line in _read(process / "status").splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def forget_peaks(session: int) -> None:
    """From now on `peak_mb` counts anew, from what each process has resident now."""
    for pid in of_session(session):
        with suppress(OSError):  # it has ended
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def peaks_mb(session: int) -> dict[str, float]:
    """The peak of a session's JVM, of all its Python processes together, and of the largest one."""
    found = [Path(f"/proc/{pid}") for pid in of_session(session)]
    java = [each for each in found if _read(each / "comm").strip() == b"java"]
    python = [peak_mb(each) for each in found if each not in java]
    return {
        "jvm_mb": round(sum(map(peak_mb, java))),
        "python_mb": round(sum(python)),
        "largest_python_mb": round(max(python, default=0)),
    }


def _processes() -> Iterator[Path]:
    return Path("/proc").glob("[0-9]*")


def _stat(process: Path) -> list[str]:
    """The fields from the state on; none if the process has ended."""
    return _read(process / "stat").decode().rpartition(")")[2].split()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
