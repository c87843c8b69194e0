"""How `eos` and `python -m eos` start: handle signals first, then import the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from eos.launch import startup_signals


def main() -> None:
    is_run = sys.argv[1:2] == ["run"]
    if is_run:
        startup_signals.listen()  # until this process becomes the launcher
    else:
        startup_signals.listen_quietly()

    from eos.cli.offline_verbs import (
        direct,  # only now: the imports from here on take a while
    )

    call = direct(sys.argv[1:])
    if call is not None:
        startup_signals.usual()
        ended(call)
    from eos.cli.main import main as command_line

    if not is_run:
        startup_signals.usual()
    command_line()


def ended(call: Callable[[], int]) -> NoReturn:
    """Run the verb and exit as the command line does: an error of this project is two lines and an
    exit code."""
    from eos.errors import EosError, report

    try:
        sys.exit(call())
    except EosError as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
