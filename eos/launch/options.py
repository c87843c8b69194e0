"""The arguments of a run: those of `./spark-submit.sh`, and options of Spark's spark-submit.

The latter are passed on to spark-submit.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from eos import log_lines
from eos.config.literals import instant_ms
from eos.errors import UsageError
from eos.launch.spark_options import require_known
from eos.suggestion import suggestion

if TYPE_CHECKING:
    from eos.config.trigger import Ending

HELP = """\
usage: ./spark-submit.sh PIPELINE.yaml ... [options] [spark-submit's options]
       ./spark-submit.sh VERB ...      same as `eos VERB ...`: status, recover, audit, ...

Run a pipeline, or several in one Spark application: docs/several-pipelines.md. Data goes to stdout,
everything else to stderr.

  --profile NAME|PATH  profile to run with: conf/NAME.yaml, or a path (default: $EOS_PROFILE, then
                       `local`, which starts an embedded Kafka broker)
  --json               print the result of a pipeline's demo as one JSON object
  --available-now      read all available records, in as many micro-batches as `max_records`
                       requires, then exit; replaces the file's trigger by
                       `trigger: {available_now: true}`
  --once               the same in one micro-batch, as with `trigger: {once: true}`
  --until TIME         like --available-now or --once, but read only the records before this time,
                       such as 2026-11-21T10:00:00Z
  --take-over          start even if another instance may be running: that one is fenced and exits
  --accept-state-loss  resume from the ledger although the state of stateful steps is lost
  --demo-crash         kill the driver in the middle of a transaction, then start it again
  --log-format FORMAT  form of log lines: console (default), text (time, level and fields), or json
                       (one object a line)
  --log-level LEVEL    lowest level of log lines: debug, info (default), warning or error
  -h, --help           show this help and exit

Example:
  ./spark-submit.sh pipelines/quickstart/pipeline.yaml --profile local

Exit codes: 0 success, 1 findings, 2 usage error, 3 fenced (do not restart), 4 exactly-once can't
be guaranteed (needs an operator), 5 transient failure (restart). Of several pipelines, the worst:
4 before 3, 2 and 5.
"""

# Options that replace the pipeline's `trigger` by one with which the run ends on its own.
ENDINGS: Mapping[str, Ending] = {"--available-now": "available_now", "--once": "once"}
# Options with a value of ours; some have a list of valid values.
VALUES: Mapping[str, tuple[str, ...]] = {
    "--profile": (),
    "--until": (),
    "--log-format": log_lines.FORMATS,
    "--log-level": log_lines.LEVELS,
}
OF_ONE = frozenset({"--json", "--demo-crash"})
FLAGS = frozenset({"--take-over", "--accept-state-loss", *OF_ONE, *ENDINGS})


@dataclass(frozen=True, slots=True)
class Options:
    pipelines: tuple[Path, ...]
    profile: str | None
    as_json: bool
    demo_crash: bool
    ends: Ending | None
    take_over: bool
    accept_state_loss: bool
    spark: tuple[str, ...]
    log_format: str = log_lines.CONSOLE
    log_level: str = log_lines.DEFAULT_LEVEL
    until: str | None = None

    @property
    def are_several(self) -> bool:
        return len(self.pipelines) > 1


def parse(arguments: Sequence[str]) -> Options:
    """Parse the arguments of a run; raise UsageError if they are invalid.

    The pipelines must be the first arguments, because after an option of spark-submit one could be
    mistaken for that option's value."""
    pipelines = leading_pipelines(arguments)
    if not pipelines:
        raise UsageError(
            "pipeline_argument_missing",
            "the first argument must be a pipeline file",
            hint="run `./spark-submit.sh pipelines/NAME/pipeline.yaml`; `ls pipelines` lists the "
            "pipelines of a project",
        )
    values: dict[str, str] = {}
    spark, flags = list[str](), set[str]()
    rest = iter(arguments[len(pipelines) :])
    for argument in rest:
        option, _, value = argument.partition("=")
        if argument in FLAGS:
            flags.add(argument)
        elif option in VALUES:
            values[option] = _valid(option, value or next(rest, ""))
        else:
            spark.append(argument)
    require_known(spark, {*FLAGS, *VALUES})
    until = values.get("--until")
    instant_before_now(until)
    if len(pipelines) > 1:
        _refuse_of_one(flags)
    return Options(
        tuple(map(_pipeline, pipelines)),
        values.get("--profile"),
        as_json="--json" in flags,
        demo_crash="--demo-crash" in flags,
        ends=ends_of(_ends(flags), until),
        take_over="--take-over" in flags,
        accept_state_loss="--accept-state-loss" in flags,
        spark=(*spark,),
        log_format=values.get("--log-format", log_lines.CONSOLE),
        log_level=values.get("--log-level", log_lines.DEFAULT_LEVEL),
        until=until,
    )


def leading_pipelines(arguments: Sequence[str]) -> Sequence[str]:
    """Return the pipelines of a run's arguments: all arguments before the first option."""
    return list(takewhile(lambda each: not each.startswith("-"), arguments))


def _refuse_of_one(flags: AbstractSet[str]) -> None:
    found = sorted(flags & OF_ONE)
    if found:
        raise UsageError(
            "option_of_one_pipeline",
            f"{' and '.join(found)} can't be used with several pipelines: demos run alone",
            hint=f"remove {' and '.join(found)}, or name one pipeline",
        )


def ends_of(ends: Ending | None, until: str | None) -> Ending | None:
    """Return the trigger of the command line: with `--until` a run ends, as with
    `--available-now`."""
    return ends or (None if until is None else "available_now")


def instant_before_now(until: str | None) -> int | None:
    """Return the time of `--until` in ms since 1970; None without it. Raise UsageError if it is
    malformed, or after the present."""
    if until is None:
        return None
    hint = "write `--until 2026-11-21T10:00:00Z`"
    try:
        found = instant_ms(until)
    except ValueError as error:
        raise UsageError(
            "until_invalid", f"--until {until!r} is not a time: {error}", hint=hint
        ) from error
    now_ms = int(time.time() * 1000)
    if found > now_ms:
        now = datetime.fromtimestamp(now_ms / 1000, timezone.utc).isoformat(timespec="seconds")
        raise UsageError(
            "until_in_future",
            f"--until {until!r} is after the present time, {now}: the run would end before it, and "
            "records of that time could still arrive",
            hint=f"{hint} with a time that has passed; `--available-now` reads all records that "
            "exist now",
        )
    return found


def _valid(option: str, value: str) -> str:
    valid = VALUES[option]
    if not value:
        examples = valid or (("TIME",) if option == "--until" else ("NAME", "PATH"))
        expected = " or ".join(f"`{option} {each}`" for each in examples)
        raise UsageError("option_value_missing", f"{option} has no value", hint=f"write {expected}")
    if valid and value not in valid:
        raise UsageError(
            "option_value_invalid",
            f"{option} can't be `{value}`{suggestion(value, valid, or_all=False)}",
            hint=f"write one of {', '.join(valid)}",
        )
    return value


def _ends(flags: Collection[str]) -> Ending | None:
    chosen = [flag for flag in ENDINGS if flag in flags]
    if len(chosen) > 1:
        raise UsageError(
            "options_conflict",
            f"{' and '.join(chosen)} can't be combined",
            hint="remove one: --once runs one micro-batch, --available-now as many as "
            "`max_records` requires",
        )
    return ENDINGS[chosen[0]] if chosen else None


def _pipeline(argument: str) -> Path:
    path = Path(argument)
    if (path / "pipeline.yaml").is_file():
        path /= "pipeline.yaml"
    if not path.is_file():
        raise UsageError(
            "pipeline_not_found",
            f"there is no pipeline file `{argument}`",
            hint="check the path; `ls pipelines` lists the pipelines of a project",
            path=argument,
        )
    return path.resolve()
