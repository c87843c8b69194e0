"""The verbs of the command line, called with their arguments. Errors are raised."""

from __future__ import annotations

from collections.abc import Sequence

from eos.cli.main import command


class Verb:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, words: Sequence[str]) -> int:
        """Run the verb and return its exit code. A usage error of the parser raises SystemExit."""
        return command([self.name, *words])()


audit, doctor, init, lint = map(Verb, ("audit", "doctor", "init", "lint"))
plan, recover, replay = map(Verb, ("plan", "recover", "replay"))
report, status, verify = map(Verb, ("report", "status", "verify"))
stop, test = map(Verb, ("stop", "test"))
