"""What a run holds as micro-batches go by: threads, open files and memory of its processes."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from support.processes import cpu_seconds_of_session, of_session

_COMMITTED = re.compile(r"micro-batch (\d+) committed")
_EVERY_S = 0.5
# They grow when the machine happens to be slow, up to a bound of their own: delta-rs' for files has
# had 57 of 512 threads after 3,000 micro-batches, each of Spark's two for blocks all its 100.
_POOLS = ("tokio-rt-worker", "block-manager-")
WHO = ("driver", "jvm", "workers")
WHAT = ("threads", "files", "mb")


class Run(Protocol):
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


def watched(run: Run, every_s: float = _EVERY_S) -> list[Sample]:
    """Samples of a run until it ends; `pid` is its driver's."""
    samples: list[Sample] = []
    while run.poll() is None:
        committed = _COMMITTED.findall(run.said()[-2_000:])
        held, used = _held(run.pid), _used(run.pid)
        if committed and held["driver", "threads"]:
            samples.append(Sample(int(committed[-1]), time.monotonic(), used, held))
        time.sleep(every_s)
    return samples


def between(samples: Iterable[Sample], first: float, last: float) -> Counter[tuple[str, str]]:
    """What was held from one micro-batch to another: the median of the samples."""
    chosen = [each.held for each in samples if first <= each.micro_batch < last]
    assert len(chosen) >= 3, f"{len(chosen)} samples from micro-batch {first:.0f} to {last:.0f}"
    keys = {(who, what) for who in WHO for what in WHAT}
    return Counter({key: round(statistics.median(held[key] for held in chosen)) for key in keys})


def growth(samples: Sequence[Sample]) -> dict[str, int]:
    """From the second third of a run to its last; the first one warms up."""
    count = samples[-1].micro_batch + 1
    before = between(samples, count / 3, count * 2 / 3)
    after = between(samples, count * 2 / 3, count)
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
