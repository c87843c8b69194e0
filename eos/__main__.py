"""The entry point of `eos` and `python -m eos`: handle signals first, then import the command
line."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from eos.launch import startup_signals


def main() -> NoReturn:
    """Run the subcommand on the command line, and exit. An error of this project prints its message
    and hint, and no stack trace."""
    is_run = sys.argv[1:2] == ["run"]
    if is_run:
        startup_signals.listen()  # until this process becomes the launcher
    else:
        startup_signals.listen_quietly()
    if "_ARGCOMPLETE" in os.environ:
        from eos.cli.completion import complete

        complete()

    from eos.cli.main import command  # late, because these imports take a while
    from eos.errors import EosError, report

    call = command(sys.argv[1:])
    if not is_run:
        startup_signals.usual()
    try:
        sys.exit(call())
    except EosError as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
