"""Which arguments does `./spark-submit.sh` take? (It passes unknown ones to spark-submit.)"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eos.errors import UsageError
from eos.launch.spark_options import require_known

if TYPE_CHECKING:
    from eos.config.trigger import Ending

HELP = """\
usage: ./spark-submit.sh PIPELINE.yaml [options] [spark-submit's options]
       ./spark-submit.sh VERB ...      as `eos VERB ...`: status, recover, audit, ...

Runs the pipeline. Data goes to stdout, everything else to stderr.

  --profile NAME|PATH  where it runs: conf/NAME.yaml (default: $EOS_PROFILE, then `local`, which
                       starts an embedded Kafka broker)
  --json               a pipeline with a demo prints its result as one JSON object
  --available-now      read all that is there and end, in as many micro-batches as it takes: as
                       `trigger: {available_now: true}`, whatever the file's trigger says
  --once               the same in one micro-batch, as `trigger: {once: true}`
  --take-over          run it although another copy may: that one is fenced, and ends
  --accept-state-loss  go on where the ledger ends although what was counted so far is lost
  --demo-crash         kill the driver in the middle of a transaction, then start it again
  -h, --help           this text

  ./spark-submit.sh pipelines/quickstart/pipeline.yaml --profile local

Exit codes: 0 fine, 1 findings, 2 usage, 3 fenced (do not restart), 4 stopped on a broken promise
(a person must act), 5 transient (restart).
"""

# Options that replace the pipeline's trigger by one that ends on its own.
ENDINGS: Mapping[str, Ending] = {"--available-now": "available_now", "--once": "once"}
_FLAGS = frozenset({"--json", "--demo-crash", "--take-over", "--accept-state-loss", *ENDINGS})


@dataclass(frozen=True, slots=True)
class Options:
    pipeline: Path
    profile: str | None
    as_json: bool
    demo_crash: bool
    ends: Ending | None
    take_over: bool
    accept_state_loss: bool
    spark: tuple[str, ...]


def parse(words: Sequence[str]) -> Options:
    """Parse the arguments. The pipeline must come first.

    Only spark-submit's options list shows which of the other words are values of options."""
    if not words or words[0].startswith("-"):
        raise UsageError(
            "pipeline_argument_missing",
            "the pipeline's file is missing",
            hint="./spark-submit.sh PIPELINE.yaml",
        )
    profile, spark, flags = None, [], set()
    rest = iter(words[1:])
    for word in rest:
        if word in _FLAGS:
            flags.add(word)
        elif word == "--profile" or word.startswith("--profile="):
            profile = word.partition("=")[2] or next(rest, "")
            if not profile:
                raise UsageError(
                    "option_value_missing",
                    "--profile has no value",
                    hint="--profile NAME or --profile PATH",
                )
        else:
            spark.append(word)
    require_known(spark, {*_FLAGS, "--profile"})
    return Options(
        _pipeline(words[0]),
        profile,
        as_json="--json" in flags,
        demo_crash="--demo-crash" in flags,
        ends=_ends(flags),
        take_over="--take-over" in flags,
        accept_state_loss="--accept-state-loss" in flags,
        spark=(*spark,),
    )


def _ends(flags: Collection[str]) -> Ending | None:
    said = [flag for flag in ENDINGS if flag in flags]
    if len(said) > 1:
        raise UsageError(
            "options_conflict",
            f"{' and '.join(said)} can't both be meant",
            hint="--once is one micro-batch, --available-now as many as `max_records` makes of "
            "what is there",
        )
    return ENDINGS[said[0]] if said else None


def _pipeline(word: str) -> Path:
    path = Path(word)
    if (path / "pipeline.yaml").is_file():
        path /= "pipeline.yaml"
    if not path.is_file():
        raise UsageError(
            "pipeline_not_found",
            f"there is no pipeline file `{word}`",
            hint="is the path right?",
            path=word,
        )
    return path.resolve()


def project_of(pipeline: Path) -> Path:
    """Return the repository of the pipeline: the folder with `pipelines/` (and `conf/`)."""
    for folder in pipeline.parents:
        if (folder / "pipelines").is_dir():
            return folder
    return pipeline.parent
