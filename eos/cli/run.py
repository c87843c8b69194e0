"""The start of pipelines. `eos run` and `./spark-submit.sh` both execute this module:

    python -m eos.cli.run PIPELINE... [OPTIONS]

A pipeline file that `eos lint` would reject is rejected here, before a broker or a JVM starts or
anything is downloaded for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from eos.launch import startup_signals


def run(arguments: Sequence[str]) -> NoReturn:
    """Start pipelines that are given by their names or their paths."""
    from eos.launch.options import leading_pipelines  # late: signals are handled first

    pipelines = leading_pipelines(arguments)
    found = [each if Path(each).is_file() else _file_of(each) for each in pipelines]
    become([*found, *arguments[len(pipelines) :]])


def _file_of(name: str) -> str:
    from eos.cli.pipeline_argument import file_of  # late: a path needs no settings

    return str(file_of(name))


def become(arguments: Sequence[str]) -> NoReturn:
    """Replace this process by the launcher, which starts spark-submit, by exec.

    So signals to this process reach the launcher, and its exit code is this process's.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    startup_signals.hold()
    os.execv(sys.executable, command(arguments))  # noqa: S606 - no shell is needed


def command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "eos.cli.run", *arguments]


def refuse_wrong(pipeline: Path) -> None:
    """Raise UsageError if `eos lint` finds errors in the file, its steps or its sinks.

    Python steps whose modules import other packages are not checked here: perhaps only the driver
    can import these packages.
    """
    from eos.cli.lint import errors  # late: wrong arguments are reported without it
    from eos.config.problems import refuse

    found = errors(pipeline)
    if found:
        raise refuse(f"the pipeline file {pipeline}", found)


if __name__ == "__main__":
    startup_signals.listen()

    from eos.launch import submit  # after listen(): this import takes a while

    sys.exit(submit.main(sys.argv[1:], refuse_wrong))
