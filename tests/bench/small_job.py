"""What spark-submit is given: `arms_job`, which tells more of each micro-batch.

`spark_files` is Spark's sink with default settings, but for the way of writing its checkpoint's
files: with ours.
"""

from __future__ import annotations

from typing import Any

import arms_job
from steps import Steps

from eos.spark.session import write_checkpoints

STEPS = Steps()
FILES = "spark_files"


class Job(arms_job.Job):
    def run(self, arm: str, number: int) -> dict[str, Any]:
        STEPS.clear()
        if arm != "eos":  # it sets that itself
            write_checkpoints(self.spark, is_local=arm == FILES)
        found = super().run(arm, number)
        if arm == "eos":
            found |= {"steps_ms": list(STEPS.taken), "jvm_calls": list(STEPS.calls)}
        return found

    def _progress(self) -> dict[str, Any]:
        every = [p["durationMs"] for p in self._triggers()]
        return {**super()._progress(), "phases_ms": every}


if __name__ == "__main__":
    arms_job.Job = Job
    arms_job.main()
