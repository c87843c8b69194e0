"""The command line `eos`. Results go to stdout, everything else to stderr.

Each command (verb) is a module of this package whose `run` gets the parsed options. The module is
imported only after the arguments are found valid, so `--help` and usage errors appear at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

import eos
from eos.cli import cluster_arguments, offline_arguments
from eos.cli.parser import Parser

_CODES = """\
Exit codes: 0 success, 1 findings, 2 usage error, 3 fenced (do not restart), 4 exactly-once can't
be guaranteed (needs an operator), 5 transient failure (restart).
"""


def command_line() -> Parser:
    """Return the parser of all verbs."""
    parser = Parser(
        prog="eos",
        description="One Kafka transaction for each Spark micro-batch, across the whole cluster.",
        epilog=_CODES,
        is_group=True,
    )
    version = f"eos {eos.__version__}"
    parser.add_argument(
        "--version", action="version", version=version, help="show the version and exit"
    )
    offline_arguments.declare(parser)
    cluster_arguments.declare(parser)
    return parser


def command(arguments: Sequence[str]) -> Callable[[], int]:
    """Parse the arguments and import the verb's module. Return a function that runs the verb.

    A usage error exits with 2.
    """
    if arguments[:1] == ["run"]:
        from eos.cli.run import run

        return partial(run, arguments[1:])
    options = command_line().parse(arguments)
    return partial(import_module(f"eos.cli.{arguments[0]}").run, options)
