"""Steps of a pipeline file: functions and queries, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.cli.lint import find
from eos.config.load import load_pipeline
from eos.errors import UsageError
from eos.transform.functions import load
from eos.transform.sql import Query

TEXT = """\
version: 1
name: orders
source: {kafka: {topic: orders}}
sink: {kafka: {topic: orders.out}}
transform:
"""


def written(folder: Path, *steps: str) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(TEXT + "".join(f"  - {step}\n" for step in steps))
    return path


def queries(folder: Path, *steps: str) -> list[Query]:
    pipeline = load_pipeline(written(folder, *steps), {})
    return list(load(pipeline.transform, pipeline.project_root, pipeline.folder))


def test_a_query_stands_in_the_file_or_beside_it(tmp_path):
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "big.sql").write_text("SELECT * FROM paid")
    found = queries(
        tmp_path,
        "{name: paid, sql: \"SELECT * FROM input WHERE x = '{a}' AND y = 1\"}",
        "sql: {file: sql/big.sql}",
        "sql: |\n      SELECT *\n      FROM input",
    )
    assert [query.name for query in found] == ["paid", "", ""]
    assert [query.label for query in found] == [
        "SQL step `paid`",
        "SQL file `sql/big.sql`",
        "step 3 (SQL)",
    ]
    assert [query.text for query in found] == [
        "SELECT * FROM input WHERE x = '{a}' AND y = 1",
        "SELECT * FROM paid",
        "SELECT *\nFROM input\n",
    ]
    assert found[1].file == str(tmp_path / "sql" / "big.sql")


@pytest.mark.parametrize(
    ("step", "column", "message"),
    [
        ("{name: x}", 5, "expected a step with one of `python`, `sql`, `pandas`"),
        (
            "{sql: SELECT 1, python: 'm:f'}",
            5,
            "expected a step with one of `python`, `sql`, `pandas`",
        ),
        ("{sql: SELECT 1, with: {a: 1}}", 5, "expected `with` only with a function"),
        ("{pandas: 'm:f'}", 5, "expected `returns` with `pandas` and `arrow`"),
        ("{python: 'm:f', returns: a INT}", 5, "expected `returns` with `pandas` and `arrow`"),
        ("{arrow: 'm:f', returns: '*, a INTT'}", 29, "got `INTT`; did you mean `INT`?"),
        ("{pandas: mf, returns: '*'}", 14, "expected a function as `package.module:function`"),
        ("{sql: SELECT 1, name: Input}", 5, "expected a name other than `input`"),
        ("{sql: SELECT 1, name: a b}", 27, "expected a name of letters, digits and `_`"),
        ("{sql: DROP TABLE x}", 11, "expected a query (SELECT, WITH, FROM ...), got a statement"),
        ("{sql: 7}", 11, "expected a query, or a mapping with the key file"),
        ("{sql: {fil: x}}", 12, "unknown key `fil`; did you mean `file`?"),
        ("{sqll: SELECT 1}", 6, "unknown key `sqll`; did you mean `sql`?"),
    ],
)
def test_what_is_no_step_is_told_at_its_place(tmp_path, step, column, message):
    with pytest.raises(UsageError) as caught:
        load_pipeline(written(tmp_path, step), {})
    places = {(p.line, p.column) for p in caught.value.fields["problems"] if message in p.message}
    assert places == {(6, column)}, str(caught.value)


def test_names_are_there_once_whatever_their_letters(tmp_path):
    with pytest.raises(UsageError, match="`paid` appears twice"):
        load_pipeline(
            written(tmp_path, "{name: paid, sql: SELECT 1}", "{name: Paid, sql: SELECT 1}"), {}
        )


def test_lint_warns_of_what_a_redo_would_not_repeat(tmp_path):
    (tmp_path / "late.sql").write_text("SELECT *,\n  now() AS at\nFROM input")
    path = written(tmp_path, "sql: SELECT *, uuid() AS id FROM input", "sql: {file: late.sql}")
    found = list(find(path))
    assert [problem.severity for problem in found] == ["warning", "warning"]
    assert [(Path(p.path).name, p.line, p.column) for p in found] == [
        ("pipeline.yaml", 6, 10),
        ("late.sql", 2, 3),
    ]
    assert str(found[0]).endswith(
        ":6:10: warning: `uuid` returns another value when a micro-batch is retried"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "can't be read: No such file"),
        (b"\xff", "is not UTF-8 text"),
        (b"DROP TABLE x", "expected a query"),
    ],
)
def test_a_file_that_holds_no_query_is_told_at_its_step(tmp_path, content, message):
    if content is not None:
        (tmp_path / "x.sql").write_bytes(content)
    (found,) = find(written(tmp_path, "sql: {file: x.sql}"))
    assert (found.line, found.column, found.severity) == (6, 10, "error")
    assert message in found.message
