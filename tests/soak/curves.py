"""Memory and threads of processes over time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_EVERY_S = 5.0
_POINTS_MAX = 2_000  # after that, every second one is dropped


def look(pid: int) -> tuple[int, int] | None:
    """Resident MiB and threads; None if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmRSS" not in found:
        return None
    return int(found["VmRSS"].split()[0]) // 1024, int(found["Threads"])


class Curves:
    """Samples processes by name. `pids` returns the present ones: a name's process may change."""

    def __init__(self, pids: Callable[[], Mapping[str, int]], every_s: float = _EVERY_S) -> None:
        self.points: list[dict[str, Any]] = []
        self._pids, self._begun = pids, time.monotonic()
        self._every_s = every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(60)

    def _sample(self) -> None:
        while not self._is_over.wait(self._every_s):
            found = {name: look(pid) for name, pid in self._pids().items()}
            seconds = round(time.monotonic() - self._begun)
            known = {name: each for name, each in found.items() if each is not None}
            self.points.append({"s": seconds, **known})
            if len(self.points) >= _POINTS_MAX:
                self.points = self.points[::2]
                self._every_s *= 2

    def summary(self) -> dict[str, dict[str, int]]:
        """For each process: the values of the first and the last tenth of the time, and the
        largest."""
        names = sorted({name for point in self.points for name in point if name != "s"})
        summary = {}
        for name in names:
            values = [point[name] for point in self.points if name in point]
            part = max(1, len(values) // 10)
            first, last = values[:part], values[-part:]
            summary[name] = {
                "MiB at first": sum(each[0] for each in first) // len(first),
                "MiB at last": sum(each[0] for each in last) // len(last),
                "MiB at most": max(each[0] for each in values),
                "threads at first": sum(each[1] for each in first) // len(first),
                "threads at last": sum(each[1] for each in last) // len(last),
                "threads at most": max(each[1] for each in values),
            }
        return summary
