"""`eos completion`: completion of `eos` commands in bash, zsh and fish.

At each TAB, the shell runs `eos`, which prints the possible words. argcomplete finds out which
argument the cursor is at.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from argcomplete import autocomplete
from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

from eos.cli.main import command_line
from eos.local.jars import BROKER_VERSIONS
from eos.location import project_root

_NAME = re.compile(r"""^name:\s*["']?([\w.-]+)""", re.MULTILINE)


def run(options: argparse.Namespace) -> int:
    print(shellcode(["eos"], shell=options.shell))
    return 0


def complete() -> None:
    """Print the possible words for the shell's current command line, and end the process.

    The shell passes that command line in environment variables.
    """
    autocomplete(command_line(), always_complete_options=False, default_completer=Values())


class Values(BaseCompleter):
    """Possible values of an argument: names of this project's pipelines or profiles, or files."""

    def __call__(
        self, *, prefix: str, action: argparse.Action, **_context: object
    ) -> Iterable[str]:
        project = project_root(Path.cwd())
        names: Iterable[str] = ()
        if action.dest in {"pipeline", "pipelines"}:
            names = map(_name, project.glob("pipelines/*/pipeline.yaml"))
        elif action.dest == "profile":
            names = (path.stem for path in project.glob("conf/*.yaml"))
        elif action.dest == "version":
            names = BROKER_VERSIONS
        found = sorted(name for name in names if name.startswith(prefix))
        return found or FilesCompleter()(prefix)


def _name(file: Path) -> str:
    """Return a pipeline's name by a text search: parsing its YAML would delay each TAB.

    Return the folder's name if the file has none.
    """
    text = file.read_text(encoding="utf-8", errors="replace")
    found = _NAME.search(text)
    return found[1] if found else file.parent.name
