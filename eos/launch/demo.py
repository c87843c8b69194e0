"""The demo of a pipeline: a program `demo.py` in the pipeline's folder.

It loads sample records before a run, and checks the pipeline's output after it:

    demo.py load --bootstrap B                                  -> {"loaded": n, "present": n}
    demo.py report --bootstrap B --seconds S --already N [--json]   exit 1: the output is wrong

It is a separate program, so that its reader shares no code with the pipeline that it checks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from eos.errors import UnavailableError

# Limits of the program's run time: longer than all of a demo's own waits, of 300 s each, together.
_LOAD_S_MAX = 1500
_REPORT_S_MAX = 1500


@dataclass(frozen=True, slots=True)
class LoadedRecords:
    """Number of sample records that this run has loaded, and of all that are in the source now."""

    loaded: int
    present: int

    @property
    def already(self) -> int:
        return self.present - self.loaded


@dataclass(frozen=True, slots=True)
class Demo:
    script: Path
    bootstrap: str

    def load(self) -> LoadedRecords:
        done = self._run("load", stdout=subprocess.PIPE, timeout_s=_LOAD_S_MAX)
        try:
            answer = json.loads(done.stdout)
            return LoadedRecords(int(answer["loaded"]), int(answer["present"]))
        except (ValueError, KeyError, TypeError):
            raise UnavailableError(
                "demo_failed",
                f"`{self.script} load` exited with code {done.returncode} and did not report how "
                "many records it loaded",
                hint="the script's own error is printed above: fix it, then start the run again",
            ) from None

    def report(self, seconds: float, already: int, as_json: bool) -> int:
        options = ["--seconds", f"{seconds:.1f}", "--already", str(already)]
        options += ["--json"] if as_json else []
        sys.stdout.flush()
        return self._run("report", *options, stdout=None, timeout_s=_REPORT_S_MAX).returncode

    def _run(
        self, verb: str, *options: str, stdout: int | None, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, str(self.script), verb, "--bootstrap", self.bootstrap, *options]
        try:
            return subprocess.run(
                command, stdout=stdout, check=False, timeout=timeout_s, env=dict(os.environ)
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(
                "demo_timeout",
                f"`{self.script} {verb}` timed out after {timeout_s:.0f} s",
                hint="the broker may be down: `eos broker status` shows whether it runs",
            ) from None


def find_demo(pipeline: Path, bootstrap: str) -> Demo | None:
    script = pipeline.parent / "demo.py"
    return Demo(script, bootstrap) if script.exists() else None
