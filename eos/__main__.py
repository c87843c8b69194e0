"""The entry point of `eos` and `python -m eos`: handle signals first, then import the command
line."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import NoReturn, TextIO

from eos.launch import startup_signals

_PIPE_CLOSED = 128 + signal.SIGPIPE  # as a shell reports it


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
    from eos.errors import EosError, of_command, report

    call = command(sys.argv[1:])
    if not is_run:
        startup_signals.usual()
    try:
        code = call()
        if sys.stdout:  # None if the caller closed it
            sys.stdout.flush()
        sys.exit(code)
    except EosError as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _is_unread(sys.stdout):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
            sys.exit(_PIPE_CLOSED)
        if os.environ.get("EOS_TRACE"):
            raise
        sys.exit(report(of_command(error)))


def _is_unread(stream: TextIO | None) -> bool:
    """Return whether the stream is a pipe whose reader, such as `head`, has ended."""
    if stream is None:
        return False
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


if __name__ == "__main__":
    main()
