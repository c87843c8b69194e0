"""What spark-submit is given: `arms_job`, whose arms are a pipeline without a step, and with one in
Arrow or pandas; before sinks that take its columns as they are, or by way of SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import arms_job

FUNCTIONS = """
def passed(rows):
    return rows
"""
_STEP = 'transform: [{{{kind}: "pipelines.rows:passed", returns: "key BINARY, value BINARY"}}]\n'
ARMS = {
    "none": ("", ""),
    "arrow": (_STEP.format(kind="arrow"), ""),
    "arrow_sql": (_STEP.format(kind="arrow"), ", value: coalesce(value)"),
    "pandas": (_STEP.format(kind="pandas"), ""),
    "pandas_sql": (_STEP.format(kind="pandas"), ", value: coalesce(value)"),
}


class Job(arms_job.Job):
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        (self.root / "pipelines").mkdir(exist_ok=True)
        (self.root / "pipelines" / "rows.py").write_text(FUNCTIONS)
        self._arm = ""

    def run(self, arm: str, number: int) -> dict[str, Any]:
        self._arm = arm
        return super().run("eos", number) | {"arm": arm}

    def _pipeline(self, name: str) -> Path:
        place, (step, column) = super()._pipeline(name), ARMS[self._arm]
        sink = f"sink: {{kafka: {{topic: {name}"
        text = place.read_text().replace(sink, step + sink + column)
        place.write_text(text)
        return place


if __name__ == "__main__":
    arms_job.Job = Job
    arms_job.main()
