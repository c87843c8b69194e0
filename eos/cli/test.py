"""`eos test`: run the tests in pipeline files on a local Spark, without Kafka."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eos.cli.pipeline_argument import file_of
from eos.config.load import load_pipeline, load_profile
from eos.config.secrets import require_hidden
from eos.errors import EosError, UsageError
from eos.location import project_root
from eos.plan.plan import plan
from eos.printable import escaped
from eos.spark.local_session import local_session
from eos.transform.functions import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.config.model import PipelineFile, ProfileFile
    from eos.pipeline_tests.runner import CaseOutcome

_RED, _GREEN, _END = "\x1b[31m", "\x1b[32m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Result:
    """The test results of one pipeline file.

    `error` is the reason why the file's tests could not run, or empty. The tests of other files
    run nevertheless. Only a file that can't be read ends the command.
    """

    path: Path
    pipeline: str
    outcomes: Sequence[CaseOutcome] = ()
    error: str = ""

    @property
    def is_passed(self) -> bool:
        return not self.error and all(each.is_passed for each in self.outcomes)


def run(options: argparse.Namespace) -> int:
    paths = [file_of(argument) for argument in options.pipelines]
    return run_cases(paths, options.profile, as_json=options.json)


def run_cases(paths: Sequence[Path], profile_name: str | None, *, as_json: bool) -> int:
    """Run the tests of all files and print their results.

    Return 1 if a test failed or a file's tests could not run, else 0.
    """
    first = paths[0].resolve()
    profile = load_profile(profile_name, project_root(first if first.is_dir() else first.parent))
    loaded = [(path, _load(path, profile)) for path in paths]
    good = [(path, each) for path, each in loaded if not isinstance(each, Result)]
    ran = iter(_run(good, profile) if good else [])
    found = [each if isinstance(each, Result) else next(ran) for _, each in loaded]
    return print_results(found, as_json=as_json)


def print_results(found: Sequence[Result], *, as_json: bool) -> int:
    """Print the results, and return the exit code: 0 if all tests passed, else 1.

    If two files have the same pipeline name, their paths are printed, too.
    """
    if as_json:
        listed = [
            {"pipeline": file.pipeline, "path": str(file.path)}
            | {**asdict(outcome), "passed": outcome.is_passed}
            for file in found
            for outcome in file.outcomes
        ]
        errors = [{"path": str(file.path), "error": file.error} for file in found if file.error]
        print(json.dumps({"tests": listed, "errors": errors}))
    else:
        names = Counter(file.pipeline for file in found)
        for file in found:
            is_only = names[file.pipeline] == 1
            name = file.pipeline if is_only else f"{file.pipeline} ({file.path})"
            print(escaped("".join(f"{line}\n" for line in _error_text(name, file))), end="")
            if not file.outcomes and not file.error:
                print(f"{name}: no tests; its steps and sinks were checked", file=sys.stderr)
    return 0 if all(file.is_passed for file in found) else 1


def lines(pipeline: str, outcome: CaseOutcome, *, has_colour: bool) -> Iterator[str]:
    """Yield the output lines of one test.

    In a failed test, `-` marks an expected record that is missing, and `+` an unexpected record.
    """

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


def _error_text(name: str, file: Result) -> Iterator[str]:
    has_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for outcome in file.outcomes:
        yield from lines(name, outcome, has_colour=has_colour)
    if file.error:
        yield f"{f'{_RED}FAIL{_END}' if has_colour else 'FAIL'}  {name}"
        yield from (f"      {line}" for line in file.error.splitlines())


def _load(path: Path, profile: ProfileFile) -> PipelineFile | Result:
    try:
        pipeline = load_pipeline(path)
        require_hidden(pipeline, profile)  # before a Spark starts for it
    except UsageError as error:
        if "problems" not in error.fields:  # the file can't be read: exit as a usage error
            raise
        return Result(path, str(path), error=str(error))
    return pipeline


def _run(files: Sequence[tuple[Path, PipelineFile]], profile: ProfileFile) -> list[Result]:
    """Run the tests of all files in one Spark session."""
    root = files[0][1].project_root
    has_avro = any(pipeline.has_avro for _, pipeline in files)
    found = []
    with local_session(profile, root, "eos test", has_avro=has_avro) as spark:
        for path, pipeline in files:
            try:
                with redirect_stdout(sys.stderr):  # keeps users' prints out of stdout
                    outcomes = _outcomes(spark, pipeline, profile)
                found.append(Result(path, pipeline.name, outcomes))
            except EosError as error:
                found.append(Result(path, pipeline.name, error=str(error)))
    return found


def _outcomes(
    spark: SparkSession, pipeline: PipelineFile, profile: ProfileFile
) -> list[CaseOutcome]:
    from eos.pipeline_tests.runner import check, run_case
    from eos.startup.registered_schemas import with_latest

    functions = load(pipeline.transform, pipeline.project_root, pipeline.folder)
    planned = with_latest(plan(pipeline, profile, (), functions), profile.registry)
    changing = check(spark, planned)
    if changing:
        names = ", ".join(changing)
        print(
            f"warning: {pipeline.name} uses {names}: the result changes when a micro-batch is "
            "retried",
            file=sys.stderr,
        )
    return [run_case(spark, planned, case) for case in pipeline.tests]
