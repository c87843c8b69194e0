"""Run one pipeline from the command line of `eos/job/run.py`, and return its exit code."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from eos import log_lines
from eos.errors import EosError, UnavailableError, report
from eos.launch import startup_signals
from eos.launch.options import ends_of, instant_before_now
from eos.local.processes import announce, die_with_parent
from eos.spark.installed_pyspark import prefer_installed


def main(argv: Sequence[str] | None = None) -> int:
    """Run one pipeline, and return the exit code."""
    # First, because the launcher waits for `announce` and then forwards the signals that it held
    # back.
    startup_signals.listen()
    announce()
    die_with_parent()
    prefer_installed()
    options = _options(argv)
    log_lines.choose(options.log_format, options.log_level)
    try:
        # Imported late: a wrong command line is rejected before Spark is loaded.
        from eos.run.pipeline import run

        run(
            Path(options.pipeline),
            options.profile,
            options.bootstrap,
            options.bootstrap_from,
            ends=ends_of(options.ends, options.until),
            take_over=options.take_over,
            accepts_state_loss=options.accept_state_loss,
            until_ms=instant_before_now(options.until),
        )
    except EosError as error:
        return report(error)
    # SIGINT during the startup: SparkContext replaces the handler until `Stopping.listen` runs
    # again.
    except KeyboardInterrupt:
        startup_signals.report_unstarted()
        return 0
    except Exception as error:
        if os.environ.get("EOS_TRACE"):
            raise
        kind, lines = type(error).__name__, str(error).strip().splitlines()
        reason = lines[0][:500] if lines else "no message"
        return report(
            UnavailableError(
                "unexpected_error",
                f"{kind}: {reason}",
                hint="set EOS_TRACE=1 for the stack trace; Spark's log may have more details",
            )
        )
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run", description="run one pipeline")
    parser.add_argument("pipeline", help="path of a pipeline.yaml")
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
