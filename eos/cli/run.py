"""`eos run`: the same as `./spark-submit.sh`, for where eos is installed.

    python -m eos.cli.run PIPELINE ...      what both become

A pipeline file that `eos lint` would refuse is refused here, before a broker or a JVM is started,
or anything is fetched for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from eos.launch import startup_signals


def run(words: Sequence[str]) -> NoReturn:
    """Becomes the parent of spark-submit: signals and the exit code are its own from here on."""
    sys.stdout.flush()
    sys.stderr.flush()
    startup_signals.hold()
    os.execv(sys.executable, command(words))  # noqa: S606 - no shell is meant


def command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "eos.cli.run", *words]


def refuse_wrong(pipeline: Path) -> None:
    """What is wrong with a file, its steps and sinks. Modules that import more than Python and what
    `lint` leaves out are the driver's to judge: what they import may be there only."""
    from eos.cli.lint import errors  # here: words that are wrong are told without it
    from eos.config.problems import refuse

    found = errors(pipeline)
    if found:
        raise refuse(f"the pipeline file {pipeline}", found)


if __name__ == "__main__":
    startup_signals.listen()

    from eos.launch import submit  # behind it: this takes a while

    sys.exit(submit.main(sys.argv[1:], refuse_wrong))
