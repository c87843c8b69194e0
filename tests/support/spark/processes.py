"""Processes of a Spark application as /proc shows them: CPU, memory, threads, connections."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Protocol

from support.waiting import wait_until

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _SESSION, _USED, _USED_BY_ENDED = 1, 3, slice(11, 13), slice(13, 15)  # the state's is 0


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


def parent(pid: int) -> int:
    """The process id of a process's parent; 0 if the process is gone."""
    return int(next(iter(_stat(Path(f"/proc/{pid}"))[_PARENT:]), 0))


def is_paused(pid: int) -> bool:
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
    wait_until(lambda: is_paused(pid), f"process {pid} does not pause")


# Runs a shell's text where it may mount file systems, which nobody else sees.
NAMESPACE = ("unshare", "--map-root-user", "--mount", "sh", "-c")


@cache
def can_mount() -> bool:
    probe = [*NAMESPACE, "mount -t tmpfs tmpfs /tmp"]
    return subprocess.run(probe, capture_output=True, check=False, timeout=60).returncode == 0


def workers(variable: str) -> Iterator[Path]:
    """Spark's Python workers that were started with this `NAME=value` in their environment."""
    for process in _processes():
        if b"pyspark.worker" in _read(process / "cmdline") and (
            variable.encode() in _read(process / "environ").split(b"\0")
        ):
            yield process


def pipeline_processes(variable: str) -> Iterator[Path]:
    """The Python processes with this `NAME=value` that run a pipeline: launcher and driver."""
    for process in _processes():
        command = _read(process / "cmdline")
        is_ours = b"python" in command and b"pyspark" not in command and b"java" not in command
        if is_ours and variable.encode() in _read(process / "environ").split(b"\0"):
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


_ESTABLISHED, _LISTENS = "01", "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass(frozen=True, order=True)
class Connection:
    """`who`: java, or the words of a Python process; `port` is of our side: another connection of
    the same process has another one."""

    who: str
    pid: int
    port: int


def connections(session: int, bootstrap: str) -> set[Connection]:
    """Of all processes of a session, to the brokers of these addresses."""
    brokers = {int(address.rpartition(":")[2]) for address in bootstrap.split(",")}
    there = dict(_established(brokers))
    return {
        Connection(_who(pid), pid, there[inode])
        for pid in of_session(session)
        for inode in sockets(pid)
        if inode in there
    }


def _established(brokers: set[int]) -> Iterator[tuple[str, int]]:
    """By inode, the port of this side."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, remote, state, *_, inode = line.split()[:10]
            if state == _ESTABLISHED and _port(remote) in brokers:
                yield inode, _port(local)


def listening(session: int) -> set[IPv4Address | IPv6Address]:
    """The addresses that processes of a session accept connections at."""
    ours = {inode for pid in of_session(session) for inode in sockets(pid)}
    return {address for inode, address in _listens() if inode in ours}


def _listens() -> Iterator[tuple[str, IPv4Address | IPv6Address]]:
    """The kernel writes an address as 32-bit words in the machine's byte order."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            words = re.findall("[0-9A-F]{8}", local.partition(":")[0])
            packed = b"".join(int(each, 16).to_bytes(4, sys.byteorder) for each in words)
            address = ip_address(packed)
            if state == _LISTENS:
                yield inode, getattr(address, "ipv4_mapped", None) or address


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def sockets(pid: int) -> Iterator[str]:
    """The inodes of the sockets that a process has open."""
    with suppress(OSError):  # the process, or the file, was closed meanwhile
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found = _SOCKET.fullmatch(str(link.readlink()))
                if found:
                    yield found[1]


def _who(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    if b"pyspark.worker" in words:
        return "worker"
    return "jvm" if words.split(b"\0")[0].endswith(b"java") else "driver"


_COMMITTED = re.compile(r"micro-batch (\d+) committed")
_EVERY_S = 0.5
# They grow when the machine happens to be slow, up to a bound of their own: delta-rs' for files has
# had 57 of 512 threads after 3,000 micro-batches, each of Spark's two for blocks all its 100.
_POOLS = ("tokio-rt-worker", "block-manager-")
WHO = ("driver", "jvm", "workers")
WHAT = ("threads", "files", "mb")


class MeasuredRun(Protocol):
    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def said(self) -> str: ...


@dataclass(frozen=True)
class Sample:
    """`held` by (who, what): all processes of a kind together."""

    micro_batch: int
    seconds: float
    cpu_seconds: float
    held: Counter[tuple[str, str]]


def sample_run(run: MeasuredRun, every_s: float = _EVERY_S) -> list[Sample]:
    """Samples of a run until it ends; `pid` is its driver's."""
    samples: list[Sample] = []
    while run.poll() is None:
        committed = _COMMITTED.findall(run.said()[-2_000:])
        held, used = _held(run.pid), _used(run.pid)
        if committed and held["driver", "threads"]:
            samples.append(Sample(int(committed[-1]), time.monotonic(), used, held))
        time.sleep(every_s)
    return samples


def held_between(samples: Iterable[Sample], first: float, last: float) -> Counter[tuple[str, str]]:
    """What was held from one micro-batch to another: the median of the samples."""
    chosen = [each.held for each in samples if first <= each.micro_batch < last]
    assert len(chosen) >= 3, f"{len(chosen)} samples from micro-batch {first:.0f} to {last:.0f}"
    keys = {(who, what) for who in WHO for what in WHAT}
    return Counter({key: round(statistics.median(held[key] for held in chosen)) for key in keys})


def growth(samples: Sequence[Sample]) -> dict[str, int]:
    """From the second third of a run to its last; the first one warms up."""
    count = samples[-1].micro_batch + 1
    before = held_between(samples, count / 3, count * 2 / 3)
    after = held_between(samples, count * 2 / 3, count)
    return {f"{who} {what}": after[who, what] - before[who, what] for who, what in before}


def cpu_growth(samples: Sequence[Sample]) -> float:
    """What a micro-batch of the last third costs, beside one of the second."""
    count = samples[-1].micro_batch + 1
    second, last = (
        [each for each in samples if third / 3 <= each.micro_batch / count < (third + 1) / 3]
        for third in (1, 2)
    )
    return _cost(last) / _cost(second)


def _cost(samples: Sequence[Sample]) -> float:
    first, last = samples[0], samples[-1]
    return (last.cpu_seconds - first.cpu_seconds) / (last.micro_batch - first.micro_batch)


def _used(driver: int) -> float:
    try:
        return cpu_seconds_of_session(os.getsid(driver))
    except ProcessLookupError:
        return 0


def _held(driver: int) -> Counter[tuple[str, str]]:
    held: Counter[tuple[str, str]] = Counter()
    try:
        every = of_session(os.getsid(driver))
    except ProcessLookupError:
        return held
    for pid in every:
        process = Path(f"/proc/{pid}")
        try:
            words = (process / "cmdline").read_bytes()
            status = dict(
                line.split(":\t", 1) for line in (process / "status").read_text().splitlines()
            )
            names = [(task / "comm").read_text() for task in (process / "task").iterdir()]
            files = len(list((process / "fd").iterdir()))
            mb = int(status["VmRSS"].split()[0]) // 1024
        except (OSError, KeyError, ValueError):  # it has just ended
            continue
        who = "driver" if pid == driver else "workers" if b"pyspark.worker" in words else "jvm"
        if who == "jvm" and status["Name"] != "java":
            continue  # one of the processes in which Spark changes a file's rights
        held[who, "threads"] += sum(not name.startswith(_POOLS) for name in names)
        held[who, "files"] += files
        held[who, "mb"] += mb
    return held
