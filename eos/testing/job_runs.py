"""Runs of a Python job's program in a test, each in a process of its own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from eos.testing.outside import Kafka
from eos.testing.runs import Ended, ended, environment


@dataclass(frozen=True)
class JobRun:
    """A Python program that is prepared to run on a test's cluster.

    It gets the cluster's addresses as KAFKA_BOOTSTRAP and a new state root as STATE_ROOT. The
    topics are those that it names, so a test creates and fills them by `kafka`.
    """

    program: Path
    kafka: Kafka
    folder: Path

    def run(self, *arguments: str, crash: str = "", code: int = 0) -> Ended:
        """Run the program to its end.

        With `crash`, a result of `crash_at`, the run is killed at that point. Raise AssertionError
        if it never reaches the point, or without `crash`, if its exit code is not `code`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        given = {"KAFKA_BOOTSTRAP": self.kafka.bootstrap, "STATE_ROOT": str(self.folder / "state")}
        words = [sys.executable, str(self.program), *arguments]
        name, cwd = self.program.name, self.program.parent
        variables = {**environment(), **given}
        return ended(name, words, variables, cwd, self.folder, crash=crash, code=code)
