"""Do the parts of a pipeline file fit together?

Each check lists the parts that it compares, so an invalid part skips only its own checks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from eos.config.model import PipelineFile
    from eos.config.problems import Location

    Findings = Iterator[tuple[Location, str]]


class Check(NamedTuple):
    parts: frozenset[str]
    find: Callable[[PipelineFile], Findings]


def findings(pipeline: PipelineFile, parts: Collection[str]) -> Findings:
    """Yield the location of each conflict and the expected value.

    `parts` names the parts that are present and valid. A check of any other part is skipped.
    """
    for check in _CHECKS:
        if check.parts <= set(parts):
            yield from check.find(pipeline)


def _no_loop(pipeline: PipelineFile) -> Findings:
    source = pipeline.source.kafka
    for topic in sorted(topic for topic in pipeline.sink.topic_names if source.reads(topic)):
        how = f" matches the pattern `{source.pattern}` and" if source.pattern else ""
        told = f"expected targets other than the sources: `{topic}`{how} would feed itself"
        yield ("sink",), told


def _producers_can_be_told(pipeline: PipelineFile) -> Findings:
    if pipeline.producers is not None:
        try:
            pipeline.producers.require_fits(
                pipeline.source, [rule.name for rule in pipeline.expect]
            )
        except ValueError as error:
            yield ("dedup",), str(error)


def _somewhere_for_dead_letters(pipeline: PipelineFile) -> Findings:
    source, rules = pipeline.source, pipeline.expect
    wanting = ["the source"] if source.on_error == "dead_letter" else []
    wanting += [f"rule `{rule.name}`" for rule in rules if rule.on_error == "dead_letter"]
    says = [f"{each} says `on_error: dead_letter`" for each in wanting]
    says += pipeline.producers.wanting_dead_letters if pipeline.producers is not None else ()
    if says and pipeline.sink.dead_letter is None:
        yield ("sink",), f"expected `dead_letter: TOPIC` in the sink: {says[0]}"


def _what_is_left_out_is_counted(pipeline: PipelineFile) -> Findings:
    """Yield a problem if dedup by columns is combined with dropped records or dead letters.

    Such records can't be counted before the commit if Spark keeps state. Here the file shows that
    state is kept. Whether steps keep state is known to Spark only, at startup.
    """
    answers = [pipeline.source.on_error, *(rule.on_error for rule in pipeline.expect)]
    other = next((answer for answer in answers if answer != "fail"), None)
    if pipeline.distinct is not None and other is not None:
        told = (
            f"expected no `on_error: {other}` beside `dedup: {{by: ...}}`, whose keys Spark keeps "
            "as a state: what is left out could not be counted before the commit. Let a pipeline "
            "of its own sort such records out before"
        )
        yield ("dedup",), told


def _steps_and_tables(pipeline: PipelineFile) -> Findings:
    known = {name.lower() for name in pipeline.tables}
    for number, step in enumerate(pipeline.transform):
        place: Location = ("transform", number)
        if step.name is not None and step.name.lower() in known:
            told = f"expected another name of a step than `{step.name}`: a table has"
            yield (*place, "name"), told
        for name in step.tables:
            if name not in pipeline.tables:
                has = ", ".join(pipeline.tables) or "none"
                told = f"expected a table of `tables`, which has no `{name}` ({has})"
                yield (*place, "tables"), told


def _tests_and_tables(pipeline: PipelineFile) -> Findings:
    for number, case in enumerate(pipeline.tests):
        for name in sorted(case.tables.keys() - pipeline.tables.keys()):
            place: Location = ("tests", number, "tables")
            yield place, f"expected tables of `tables` in a test, not `{name}`"


def _tables_catch_up_without_dedup(pipeline: PipelineFile) -> Findings:
    if pipeline.dedup is not None and pipeline.sink.delta:
        told = (
            "expected no Delta table beside `dedup`: one that is caught up after a crash needs "
            "what was known before that micro-batch, and what is known is as of after it. Let a "
            "pipeline of its own fill the table from the topic"
        )
        yield ("dedup",), told


def _tables_catch_up_by_a_file(pipeline: PipelineFile) -> Findings:
    if pipeline.reads_latest and pipeline.sink.delta:
        told = (
            "expected `file` beside the source's `subject`, since there is a Delta table: one that "
            "is caught up after a crash is read by the schema of that micro-batch, and the "
            "registry may have a newer one by then"
        )
        yield ("source",), told


_DEDUP = frozenset({"source", "dedup", "expect"})
_CHECKS = (
    Check(frozenset({"source", "sink"}), _no_loop),
    Check(_DEDUP, _producers_can_be_told),
    Check(_DEDUP | {"sink"}, _somewhere_for_dead_letters),
    Check(_DEDUP, _what_is_left_out_is_counted),
    Check(frozenset({"tables", "transform"}), _steps_and_tables),
    Check(frozenset({"tables", "tests"}), _tests_and_tables),
    Check(frozenset({"dedup", "sink"}), _tables_catch_up_without_dedup),
    Check(frozenset({"source", "sink"}), _tables_catch_up_by_a_file),
)
