"""`eos test`: runs the tests in pipeline files, on a Spark of its own and without Kafka."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from eos.config.load import load_pipeline, load_profile
from eos.config.secrets import require_hidden
from eos.plan.plan import plan
from eos.run.local import local_session
from eos.transform.functions import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.config.model import PipelineFile, ProfileFile
    from eos.run.cases import Outcome

_RED, _GREEN, _END = "\x1b[31m", "\x1b[32m", "\x1b[0m"


def run_cases(paths: Sequence[Path], profile_name: str | None, *, as_json: bool) -> int:
    """Prints what each test found. 1 if one failed."""
    pipelines = [load_pipeline(path) for path in paths]
    profile = load_profile(profile_name, pipelines[0].project_root)
    for pipeline in pipelines:
        require_hidden(pipeline, profile)  # before a Spark is started for it
    found: dict[str, list[Outcome]] = {}
    has_avro = any(pipeline.has_avro for pipeline in pipelines)
    root = pipelines[0].project_root
    with local_session(profile, root, "eos test", has_avro=has_avro) as spark:
        for pipeline in pipelines:
            # What users' modules print is not what was asked for.
            with redirect_stdout(sys.stderr):
                found[pipeline.name] = _outcomes(spark, pipeline, profile)
    if as_json:
        listed = [
            {"pipeline": name, **asdict(outcome), "passed": outcome.is_passed}
            for name, outcomes in found.items()
            for outcome in outcomes
        ]
        print(json.dumps({"tests": listed}))
    else:
        for name, outcomes in found.items():
            for outcome in outcomes:
                print("\n".join(lines(name, outcome, has_colour=_has_colour())))
            if not outcomes:
                print(f"{name}: no tests; its steps and sinks were checked", file=sys.stderr)
    return 0 if all(each.is_passed for outcomes in found.values() for each in outcomes) else 1


def lines(pipeline: str, outcome: Outcome, *, has_colour: bool) -> Iterator[str]:
    """`-` is what should have been written, `+` what was. Colour only underlines it."""

    def coloured(colour: str, text: str) -> str:
        return f"{colour}{text}{_END}" if has_colour else text

    if outcome.is_passed:
        yield f"{coloured(_GREEN, 'ok')}    {pipeline}: {outcome.name}"
        return
    yield f"{coloured(_RED, 'FAIL')}  {pipeline}: {outcome.name}"
    if outcome.error:
        yield from (f"      {line}" for line in outcome.error.splitlines())
        return
    if outcome.matched:
        yield f"      {outcome.matched} as expected"
    yield from (coloured(_RED, f"    - {line}") for line in outcome.missing)
    yield from (coloured(_GREEN, f"    + {line}") for line in outcome.unexpected)


def _outcomes(spark: SparkSession, pipeline: PipelineFile, profile: ProfileFile) -> list[Outcome]:
    from eos.run.cases import check, run_case
    from eos.run.registered import with_latest

    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    planned = with_latest(plan(pipeline, profile, (), functions), profile.registry)
    changing = check(spark, planned)
    if changing:
        told = f"{', '.join(changing)}: a micro-batch that is redone gets other values"
        print(f"warning: {pipeline.name} uses {told}", file=sys.stderr)
    return [run_case(spark, planned, case) for case in pipeline.tests]


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
