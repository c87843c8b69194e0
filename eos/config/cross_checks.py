"""Checks that compare several parts of a pipeline file, such as source and sink.

Each check lists the parts that it compares. If a part is invalid, only the checks that list it are
skipped.
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
    """Yield each conflict between parts: its location in the file and a text with the expected
    value.

    `parts` has the names of the valid parts. A check that compares another part is skipped.
    """
    for check in _CHECKS:
        if check.parts <= set(parts):
            yield from check.find(pipeline)


def _check_loop(pipeline: PipelineFile) -> Findings:
    source = pipeline.source.kafka
    if source.cluster is not None:
        return  # the startup compares the clusters' ids
    for topic in sorted(topic for topic in pipeline.sink.topic_names if source.reads(topic)):
        reason = (
            f"matches the pattern `{source.pattern}`" if source.pattern else "is a source topic"
        )
        text = f"expected target topics that the source does not read: `{topic}` {reason}"
        yield ("sink",), text


def _check_stamps(pipeline: PipelineFile) -> Findings:
    if pipeline.producers is not None:
        try:
            pipeline.producers.require_fits(
                pipeline.source, [rule.name for rule in pipeline.expect]
            )
        except ValueError as error:
            yield ("dedup",), str(error)


def _check_dead_letter_topic(pipeline: PipelineFile) -> Findings:
    source, rules = pipeline.source, pipeline.expect
    wanting = ["the source"] if source.on_error == "dead_letter" else []
    wanting += [f"rule `{rule.name}`" for rule in rules if rule.on_error == "dead_letter"]
    reasons = [f"{each} has `on_error: dead_letter`" for each in wanting]
    reasons += pipeline.producers.wanting_dead_letters if pipeline.producers is not None else ()
    if reasons and pipeline.sink.dead_letter is None:
        yield ("sink",), f"expected `dead_letter: TOPIC` in the sink: {reasons[0]}"


def _check_rejections_and_state(pipeline: PipelineFile) -> Findings:
    """Yield a problem if dedup by columns is combined with dropped records or dead letters.

    If Spark keeps state, such records can't be counted before the commit. Dedup by columns keeps
    state, as the file shows. Whether steps keep state, only Spark can find out, at startup.
    """
    answers = [pipeline.source.on_error, *(rule.on_error for rule in pipeline.expect)]
    other = next((answer for answer in answers if answer != "fail"), None)
    if pipeline.distinct is not None and other is not None:
        text = (
            f"expected no `on_error: {other}` with `dedup: {{by: ...}}`: in a stateful pipeline, "
            "rejected records could not be counted before the commit. Reject them in a separate "
            "pipeline before this one"
        )
        yield ("dedup",), text


def _check_step_tables(pipeline: PipelineFile) -> Findings:
    known = {name.lower() for name in pipeline.tables}
    for number, step in enumerate(pipeline.transform):
        place: Location = ("transform", number)
        if step.name is not None and step.name.lower() in known:
            text = f"expected a step name other than `{step.name}`, which is the name of a table"
            yield (*place, "name"), text
        for name in step.tables:
            if name not in pipeline.tables:
                has = ", ".join(pipeline.tables) or "none"
                text = f"expected names of tables from `tables`: it has no `{name}` (it has {has})"
                yield (*place, "tables"), text


def _check_test_tables(pipeline: PipelineFile) -> Findings:
    for number, case in enumerate(pipeline.tests):
        for name in sorted(case.tables.keys() - pipeline.tables.keys()):
            place: Location = ("tests", number, "tables")
            yield place, f"expected names of tables from `tables`: it has no `{name}`"


def _check_delta_and_dedup(pipeline: PipelineFile) -> Findings:
    if pipeline.distinct is not None and pipeline.sink.delta:
        text = (
            "expected no Delta table with `dedup: {by: ...}`: after a crash, a table's missing "
            "rows are computed again, which needs the keys that Spark knew before that "
            "micro-batch, and Spark keeps only those after it. Write the table in a separate "
            "pipeline that reads the topic"
        )
        yield ("dedup",), text


def _check_delta_and_registry(pipeline: PipelineFile) -> Findings:
    if pipeline.reads_latest and pipeline.sink.delta:
        text = (
            "expected `file` with the source's `subject`, because the pipeline writes a Delta "
            "table: after a crash, the table's missing rows are decoded again, and by then the "
            "registry may have a newer schema"
        )
        yield ("source",), text


_DEDUP = frozenset({"source", "dedup", "expect"})
_CHECKS = (
    Check(frozenset({"source", "sink"}), _check_loop),
    Check(_DEDUP, _check_stamps),
    Check(_DEDUP | {"sink"}, _check_dead_letter_topic),
    Check(_DEDUP, _check_rejections_and_state),
    Check(frozenset({"tables", "transform"}), _check_step_tables),
    Check(frozenset({"tables", "tests"}), _check_test_tables),
    Check(frozenset({"dedup", "sink"}), _check_delta_and_dedup),
    Check(frozenset({"source", "sink"}), _check_delta_and_registry),
)
