"""What spark-submit is given: `arms_job`, whose arms are pipelines without dedup and with it: one
that passes records on, and one that reads JSON, computes a column and writes JSON.

A source holds each producer's first record, then each one's second. What counts is the second half
of an arm's micro-batches, when all producers are known: from commit to commit.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import arms_job
from support.spark.processes import cpu_seconds_of, cpu_seconds_of_session

PIPELINE = """
version: 1
name: {name}
source:
  kafka: {{topic: {source}, max_records: {records}}}
{steps}sink: {{kafka: {{topic: {target}{columns}}}}}
trigger: {{available_now: true}}
"""
_STAMP = "producer: {id: header(p), epoch: header(e), sequence: header(s)}"
_DEDUP = {
    "without": "",
    "partition": f"dedup: {{{_STAMP}}}\n",
    "producer": f"dedup: {{{_STAMP}, scope: producer}}\n",
}
_JSON = """\
  value: {json: "id BIGINT, customer STRING, amount DOUBLE, note STRING"}
transform: [{sql: 'SELECT *, amount * 1.19 AS gross FROM input WHERE amount > 0'}]
"""
# What stands between source and sink, and which columns the sink makes.
ARMS = {arm: (dedup, "") for arm, dedup in _DEDUP.items()} | {
    f"json_{arm}": (_JSON + dedup, ", key: id, value: json") for arm, dedup in _DEDUP.items()
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
        self._arm = ""
        self._heard = Timed()

    def run(self, arm: str, number: int) -> dict[str, Any]:
        self._arm = arm
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
        place, (steps, columns) = super()._pipeline(name), ARMS[self._arm]
        given = {"name": name, "source": self.source, "target": name, "records": self.batch}
        place.write_text(PIPELINE.format(**given, steps=steps, columns=columns))
        return place

    def _eos(self, name: str, heard: Timed) -> None:
        self._heard = heard
        super()._eos(name, heard)


if __name__ == "__main__":
    arms_job.Job = Job
    arms_job.Collected = Timed
    arms_job.main()
