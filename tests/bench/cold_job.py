"""What spark-submit is given: `small_job` for one start, in a process of its own.

`without` in the settings names what this project does for a quick start and this one goes without.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

SETTINGS = json.loads(Path(sys.argv[1]).read_text())
sys.path.insert(0, str(Path(__file__).parents[2]))

if "installed" not in SETTINGS["without"]:
    from eos.spark.installed_pyspark import prefer_installed

    prefer_installed()

import arms_job  # noqa: E402 - what comes before decides where pyspark is found
import small_job  # noqa: E402
from support.spark.processes import cpu_seconds_of_session  # noqa: E402

from eos.observe import events  # noqa: E402

FIRST: dict[str, float] = {}


class Collected(arms_job.Collected):
    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.MicroBatchCommitted) and not FIRST:
            FIRST["committed_s"] = round(time.time() - SETTINGS["submitted_at"], 3)
            FIRST["committed_cpu_s"] = round(cpu_seconds_of_session(os.getsid(0)), 2)
        super().__call__(event)


class Job(small_job.Job):
    def run(self, arm: str, number: int) -> dict[str, Any]:
        return {**super().run(arm, number), **FIRST}


if __name__ == "__main__":
    arms_job.Collected = Collected
    arms_job.Job = Job
    arms_job.main()
