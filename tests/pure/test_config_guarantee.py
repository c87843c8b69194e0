"""`guarantee`: `at_least_once` is refused with place and remedy, `exactly_once` is accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.docs import ROOT

from eos.cli.lint import errors
from eos.config.load import load_pipeline
from eos.config.model import PipelineFile
from eos.config.problems import Problem
from eos.config.source import StartAt
from eos.errors import Recovery, UsageError

PIPELINE = """\
version: 1
name: orders
source: {kafka: {topic: orders}}
sink: {kafka: {topic: orders.out}}
"""
REFUSED = (
    "expected exactly_once, got `at_least_once`, which is no longer supported. Remove the key "
    "`guarantee`: a pipeline is exactly once without it. To write at least once, use Spark's own "
    'Kafka sink (docs/pipelines.md, section "At least once")'
)


def written(folder: Path, more: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE + more)
    return path


def refused(path: Path) -> tuple[Problem, ...]:
    """Return the problems with which loading the file ends."""
    with pytest.raises(UsageError) as caught:
        load_pipeline(path, {"GUARANTEE": "at_least_once"})
    assert caught.value.recovery is Recovery.USAGE
    found: tuple[Problem, ...] = caught.value.fields["problems"]
    assert all(str(problem) in caught.value.message for problem in found)
    return found


@pytest.mark.parametrize("word", ["at_least_once", '"at_least_once"', "${GUARANTEE}"])
def test_at_least_once_is_refused_with_its_place_and_the_remedy(tmp_path: Path, word: str) -> None:
    path = written(tmp_path, f"trigger: {{once: true}}\nguarantee:   {word}\n")
    assert refused(path) == (Problem(str(path), 6, 14, REFUSED),)


def test_the_launcher_refuses_it_before_it_starts_anything(tmp_path: Path) -> None:
    path = written(tmp_path, "guarantee: at_least_once\n")
    assert errors(path) == [Problem(str(path), 5, 12, REFUSED)]


def test_what_else_is_wrong_is_reported_with_it(tmp_path: Path) -> None:
    path = written(tmp_path, "guarantee: at_least_once\noutput_mode: complete\n")
    assert [(each.line, each.column) for each in refused(path)] == [(5, 12), (6, 14)]


def test_exactly_once_is_accepted_and_means_the_same_as_no_key(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    without = load_pipeline(written(tmp_path / "without", ""))
    assert load_pipeline(written(tmp_path, "guarantee: exactly_once\n")).model_dump() == (
        without.model_dump()
    )


def test_another_word_is_no_guarantee(tmp_path: Path) -> None:
    (problem,) = refused(written(tmp_path, "guarantee: exactly_one\n"))
    assert problem.message == (
        "expected exactly_once, got `exactly_one`; did you mean `exactly_once`?"
    )


def test_editors_offer_exactly_once_alone() -> None:
    assert PipelineFile.model_json_schema()["properties"]["guarantee"]["const"] == "exactly_once"


def section() -> str:
    """Return the section of the guide that the message names."""
    guide = (ROOT / "docs" / "pipelines.md").read_text()
    return guide.partition("\n## At least once\n")[2].partition("\n## ")[0]


def test_the_section_that_the_message_names_shows_sparks_own_sink() -> None:
    assert '.writeStream.format("kafka")' in section()


def test_a_line_of_sparks_offset_log_is_a_start_as_the_section_says(tmp_path: Path) -> None:
    """Spark writes a micro-batch's ends in JSON, which is YAML, too."""
    assert "`start: {offsets: ...}`" in section()
    ends = {"orders": {"1": 7, "0": 12}}
    path = tmp_path / "pipeline.yaml"
    start = f"{{topic: orders, start: {{offsets: {json.dumps(ends, separators=(',', ':'))}}}}}"
    path.write_text(PIPELINE.replace("{topic: orders}", start))
    start_at = load_pipeline(path).source.kafka.start
    assert isinstance(start_at, StartAt)
    assert start_at.offsets == {"orders": {0: 12, 1: 7}}
