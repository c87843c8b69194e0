"""Tests in a pipeline file: what they may say, and how a difference is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.errors import raises

from eos.cli.test import Result, lines, print_results, run_cases
from eos.config.load import load_pipeline
from eos.errors import UsageError
from eos.pipeline_tests.runner import CaseOutcome

TEXT = """\
version: 1
name: orders
source: {kafka: {topic: orders}}
sink: {kafka: {topic: orders.out}}
tests:
"""


def written(folder: Path, *cases: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT + "".join(f"  - {case}\n" for case in cases))
    return path


def test_a_case_is_records_in_and_records_out(tmp_path):
    (case,) = load_pipeline(
        written(
            tmp_path,
            "{name: a, input: [{value: {x: [1]}, offset: 7}, {}], output: [{key: 1, value: null}]}",
        ),
        {},
    ).tests
    assert [record.value for record in case.input] == [{"x": [1]}, None]
    assert case.input[0].offset == 7
    assert case.output[0].model_fields_set == {"key", "value"}


@pytest.mark.parametrize(
    ("case", "column", "message"),
    [
        ("{name: a, input: []}", 5, "expected key `output`, which is missing"),
        ("{name: '', input: [], output: []}", 12, "expected a text that is not empty"),
        ("{name: a, input: [{valu: 1}], output: []}", 24, "did you mean `value`?"),
        ("{name: a, input: [{timestamp: 5}], output: []}", 35, "expected a time such as"),
        ("{name: a, input: [], output: [{topic: a b}]}", 43, "expected a topic name"),
    ],
)
def test_what_is_no_case_is_told_at_its_place(tmp_path, case, column, message):
    with pytest.raises(UsageError) as caught:
        load_pipeline(written(tmp_path, case), {})
    (found,) = caught.value.fields["problems"]
    assert message in found.message
    assert (found.line, found.column) == (6, column)


def test_differences_are_told_in_words_and_coloured_on_a_terminal():
    failed = CaseOutcome("a", 2, missing=("x",), unexpected=("y", "z"))
    assert list(lines("p", failed, has_colour=False)) == [
        "FAIL  p: a",
        "      2 as expected",
        "    - x",
        "    + y",
        "    + z",
    ]
    assert list(lines("p", failed, has_colour=True))[2] == "\x1b[31m    - x\x1b[0m"
    assert list(lines("p", CaseOutcome("a", 2), has_colour=False)) == ["ok    p: a"]
    broken = CaseOutcome("a", 0, error="m\n  hint: h")
    assert list(lines("p", broken, has_colour=False))[1:] == ["      m", "        hint: h"]
    assert not broken.is_passed


def test_two_files_of_one_name_are_both_told_each_by_its_path(capsys):
    first = Result(Path("a"), "orders", [CaseOutcome("x", 1)])
    second = Result(Path("b"), "orders", [CaseOutcome("x", 0, missing=("m",))])
    other = Result(Path("c"), "bills", [CaseOutcome("y", 1)])
    assert print_results([first, other], as_json=False) == 0
    assert capsys.readouterr().out == "ok    orders: x\nok    bills: y\n"
    assert print_results([second, first, other], as_json=False) == 1
    assert capsys.readouterr().out.splitlines() == [
        "FAIL  orders (b): x",
        "    - m",
        "ok    orders (a): x",
        "ok    bills: y",
    ]
    assert print_results([second, first], as_json=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(each["path"], each["passed"]) for each in found["tests"]] == [
        ("b", False),
        ("a", True),
    ]
    assert found["errors"] == []


def test_a_file_that_can_not_be_loaded_has_failed_and_needs_no_spark(tmp_path, capsys):
    path = written(tmp_path, "{name: a, input: [{valu: 1}], output: []}")
    assert run_cases([path], None, as_json=False) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"FAIL  {path}"
    assert "did you mean `value`?" in told[2]
    assert run_cases([path], None, as_json=True) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["path"] == str(path)
    with raises("config_file_unreadable"):
        run_cases([path, tmp_path / "none.yaml"], None, as_json=False)
