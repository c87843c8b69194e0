"""`eos lint` tells all that is wrong with a file in one go, and nothing that only follows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eos.cli.lint import errors, find

ALL_WRONG = """\
version: 1
nme: orders
source:
  kafka: {topic: orders, max_records: 0}
  value: {json: "id BIGINT, amount DOUBLE"}
expect:
  - {name: paid, rule: rand() < 1}
  - {name: a b, rule: amuont > 0}
transform:
  - python: words_at_once:missing
  - {python: "words_at_once:priced", with: {rat: 2}}
  - {python: "words_at_once:unset", with: {rate: "${UNSET_HERE}"}}
  - sql: SELECT *, uuid() AS u FROM input
  - {sql: SELECT * FROM input, with: {a: 1}}
sink:
  kafka:
    - {topic: out, where: rand() < 1}
    - {topic: out.avro, value: {avro: {file: gone.avsc}}}
    - {topic: out.bad, compression: lz5}
  delta: {path: lake/x, where: now() > ts}
trigger: {every: 1}
"""


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a project's folders stay on it


def told(folder: Path, text: str) -> list[tuple[int, str]]:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return [(found.line, found.message) for found in find(path)]


def test_words_steps_rules_and_sinks_are_told_together_in_the_files_order(tmp_path: Path) -> None:
    (tmp_path / "words_at_once.py").write_text(
        "def priced(rows, rate): ...\ndef unset(rows, rate): ...\n"
    )
    wanted = [
        (1, "expected key `name`, which is missing"),
        (2, "unknown key `nme`; did you mean `name`?"),
        (4, "expected a number of at least 1, got `0`"),
        (7, "`rand` in a rule returns another value"),
        (8, "expected a name of at most 50 letters"),
        (10, "has no function `missing`"),
        (11, "`rat`"),
        (12, "expected the environment variable `UNSET_HERE`"),
        (13, "`uuid` returns"),
        (14, "expected `with` only with a function"),
        (17, "`rand` returns"),
        (18, "gone.avsc can't be read"),
        (19, "did you mean `lz4`?"),
        (20, "`now` returns"),
        (21, "expected a duration such as"),
    ]
    found = told(tmp_path, ALL_WRONG)
    assert [line for line, _ in found] == [line for line, _ in wanted]
    for (_, message), (_, words) in zip(found, wanted, strict=True):
        assert words in message


def test_a_rule_is_compared_with_columns_that_are_known_only(tmp_path: Path) -> None:
    text = ALL_WRONG.replace("  - {name: a b, rule", "  - {name: b, rule")
    assert not any("amuont" in message for _, message in told(tmp_path, text))
    right = text.replace(", max_records: 0", "")
    assert (8, "`amuont` is not a column of the source; did you mean `amount`?") in told(
        tmp_path, right
    )


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ('{json: "current_date DATE"}', 0),
        ("{avro: {subject: orders-value}}", 0),  # only the registry knows
        ('{json: "day DATE"}', 1),
    ],
)
def test_a_column_of_a_rule_may_have_a_functions_name(
    tmp_path: Path, value: str, count: int
) -> None:
    path = tmp_path / "pipeline.yaml"
    rules = "expect: [{name: a, rule: current_date > '2026-01-01'}]\n"
    path.write_text(
        f"version: 1\nname: a\nsource: {{kafka: {{topic: in}}, value: {value}}}\n{rules}"
        "sink: {kafka: {topic: out}}\n"
    )
    for found in (errors(path), [each for each in find(path) if each.severity == "error"]):
        assert len(found) == count, found


PAIRS = """\
version: 1
name: orders
source: {kafka: {topic: orders}, value: {json: "id INT, ts TIMESTAMP"}, on_error: dead_letter}
transform: [{python: "unset_pairs:f", tables: [rates]}]
sink: {kafka: {topic: orders}}
tests: [{name: a, tables: {prices: []}, input: [], output: []}]
"""


def test_what_is_no_part_at_all_is_told_as_such(tmp_path: Path) -> None:
    for key, value in (
        ("source", "[5]"),
        ("sink", "[5]"),
        ("transform", "5"),
        ("expect", "{a: 1}"),
    ):
        lines = [line for line in PAIRS.splitlines() if not line.startswith(key)]
        found = told(tmp_path, "\n".join([*lines, f"{key}: {value}"]))
        assert [message[:8] for line, message in found if line == len(lines) + 1] == ["expected"]


@pytest.mark.parametrize("wrong", ["", "trigger: {every: 1}\n"])
def test_parts_that_do_not_go_together_are_told_all_whatever_else_is_wrong(
    tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "unset_pairs.py").write_text("def f(rows, rates): ...\n")
    found = told(tmp_path, PAIRS + wrong)
    words = ["has no `rates`", "`orders` is a source topic", "`dead_letter: TOPIC`", "no `prices`"]
    assert [line for line, _ in found][:4] == [4, 5, 5, 6]
    for word in words:
        assert sum(word in message for _, message in found) == 1
    assert len(found) == (5 if wrong else 4)


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        # Without the value there is no such key, no other end of a comparison, no such form.
        ("kafka: {topic: orders}}\n", "kafka: {topic: '${UNSET_HERE}'}}\n", 4),
        ('python: "unset_pairs:f"', 'python: "${UNSET_HERE}"', 5),
        ("topic: orders}}\n", "topic: orders}, dead_letter: '${UNSET_HERE}'}\n", 4),
        ("sink: {kafka: {topic: orders}}", "sink: {kafka: {topic: o, key: '${UNSET_HERE}'}}", 4),
        ("{every: 1}", "{every: '${UNSET_HERE}'}", 5),
    ],
)
def test_what_follows_from_a_variable_that_is_not_set_is_not_told(
    tmp_path: Path, old: str, new: str, count: int
) -> None:
    (tmp_path / "unset_pairs.py").write_text("def f(rows, rates): ...\n")
    found = told(tmp_path, (PAIRS + "trigger: {every: 1}\n").replace(old, new))
    assert sum("UNSET_HERE" in message for _, message in found) == 1
    assert len(found) == count, found


def test_a_name_that_a_query_reads_is_that_of_a_step_or_a_table(tmp_path: Path) -> None:
    text = """\
version: 1
name: orders
source: {kafka: {topic: orders}}
tables: {rates: {csv: rates.csv, columns: "a INT"}}
transform:
  - {name: Paid, sql: "SELECT * FROM inputs"}
  - {name: wrong, sql: ""}
  - {sql: "SELECT * FROM paid JOIN rates JOIN wrong JOIN default.there JOIN elsewhere"}
sink: {kafka: {topic: out}}
"""
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    found = [each for each in find(path) if each.severity == "warning"]
    assert [each.line for each in found] == [6, 8]
    assert "`inputs` is neither a step nor a table of the file" in found[0].message
    assert found[0].message.endswith("; did you mean `input`?")
    assert found[1].message.endswith("; known here: Paid, input, rates, wrong")
