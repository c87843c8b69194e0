"""Run pipelines from the command line of `eos/job/run.py`, and return the exit code."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from eos import log_lines
from eos.errors import EosError, report, unexpected
from eos.launch import startup_signals
from eos.launch.options import ends_of, instant_before_now
from eos.local.processes import announce, die_with_parent
from eos.spark.installed_pyspark import prefer_installed


def main(argv: Sequence[str] | None = None) -> int:
    """Run one pipeline or several, and return the exit code."""
    # First, because the launcher waits for `announce` and then forwards the signals that it held
    # back.
    startup_signals.listen()
    announce()
    die_with_parent()
    prefer_installed()
    options = _options(argv)
    log_lines.choose(options.log_format, options.log_level)
    try:
        return _run(options)
    except EosError as error:
        return report(error)
    # SIGINT during the startup: SparkContext replaces the handler until `StopSignals.listen`
    # runs again.
    except KeyboardInterrupt:
        startup_signals.report_unstarted()
        return 0
    except Exception as error:
        if os.environ.get("EOS_TRACE"):
            raise
        return report(unexpected(error))


def _run(options: argparse.Namespace) -> int:
    # Imported late: a wrong command line is rejected before Spark is loaded.
    from eos.run.pipeline import run
    from eos.run.prepared import RunOptions
    from eos.startup.yarn_attempt import yarn_attempt

    attempt = yarn_attempt()
    # YARN repeats the command line. What the user decided was about the first start.
    is_restart = attempt is not None and attempt.is_restart
    parsed = RunOptions(
        options.profile,
        options.bootstrap,
        options.bootstrap_from,
        ends=ends_of(options.ends, options.until),
        take_over=options.take_over and not is_restart,
        accepts_state_loss=options.accept_state_loss and not is_restart,
        until_ms=instant_before_now(options.until),
    )
    if len(options.pipelines) > 1:
        from eos.run.several import run_several

        return run_several(options.pipelines, parsed)
    run(options.pipelines[0], parsed)
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run", description="run pipelines")
    parser.add_argument("pipelines", nargs="+", type=Path, help="paths of pipeline files")
    parser.add_argument("--profile", help="name in conf/ or path of a profile")
    parser.add_argument("--bootstrap", help="Kafka addresses, instead of the profile's")
    parser.add_argument(
        "--bootstrap-from", type=Path, help="file with the addresses; wait until it exists"
    )
    ends = parser.add_mutually_exclusive_group()
    for word, about in (
        ("available_now", "drain the source, then exit"),
        ("once", "one micro-batch"),
    ):
        flag = f"--{word.replace('_', '-')}"
        ends.add_argument(flag, action="store_const", const=word, dest="ends", help=about)
    parser.add_argument(
        "--until", metavar="TIME", help="read only the records before this time, then exit"
    )
    parser.add_argument("--take-over", action="store_true", help="fence an instance that may run")
    parser.add_argument(
        "--accept-state-loss",
        action="store_true",
        help="resume without the state of stateful steps",
    )
    parser.add_argument(
        "--log-format", choices=log_lines.FORMATS, default=log_lines.CONSOLE, help="of log lines"
    )
    parser.add_argument(
        "--log-level",
        choices=log_lines.LEVELS,
        default=log_lines.DEFAULT_LEVEL,
        help="lowest level of log lines",
    )
    return parser.parse_args(argv)
