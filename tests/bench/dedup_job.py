"""What spark-submit is given: `arms_job`, whose arms are a pipeline without dedup and with it.

A source holds each producer's first record, then each one's second. What counts is the second half
of an arm's micro-batches, when all producers are known: from commit to commit.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import arms_job
from support.processes import cpu_seconds_of, cpu_seconds_of_session

_STAMP = "producer: {{id: header(p), epoch: header(e), sequence: header(s)}}"
ARMS = {
    "without": "",
    "partition": f"dedup: {{{{{_STAMP}}}}}\n",
    "producer": f"dedup: {{{{{_STAMP}, scope: producer}}}}\n",
}


class Timed(arms_job.Collected):
    """The commits, and when each was heard of: seconds, and CPU seconds of Spark and the broker."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[float, float]] = []

    def __call__(self, event: object) -> None:
        before = len(self.commits)
        super().__call__(event)
        if len(self.commits) > before:
            used = cpu_seconds_of_session(os.getsid(0)) + sum(map(cpu_seconds_of, Job.of_broker))
            self.marks.append((time.monotonic(), used))


class Job(arms_job.Job):
    of_broker: tuple[int, ...] = ()

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        Job.of_broker = tuple(self.brokers)
        self._text = ""
        self._heard = Timed()

    def run(self, arm: str, number: int) -> dict[str, Any]:
        self._text = ARMS[arm]
        found = super().run("eos", number)
        marks = self._heard.marks
        (begun, used), (ended, used_then) = marks[len(marks) // 2 - 1], marks[-1]
        known = self._heard.commits[len(marks) // 2 :]
        found |= {
            "arm": arm,
            "known_records": sum(each.records_out for each in known),
            "known_seconds": round(ended - begun, 3),
            "known_cpu_seconds": round(used_then - used, 2),
        }
        return found

    def _pipeline(self, name: str) -> Path:
        place = super()._pipeline(name)
        place.write_text(place.read_text() + self._text.format())
        return place

    def _eos(self, name: str, heard: Timed) -> None:
        self._heard = heard
        super()._eos(name, heard)


if __name__ == "__main__":
    arms_job.Job = Job
    arms_job.Collected = Timed
    arms_job.main()
