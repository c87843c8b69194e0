"""A transform is found and fits its arguments, or a sentence says why not. No Spark here."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.errors import raises

from eos.errors import TransformError
from eos.transform.functions import load


class Step(NamedTuple):
    python: str
    arguments: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    sql: str | None = None
    name: str | None = None
    pandas: str | None = None
    arrow: str | None = None
    returns: str | None = None
    tables: tuple[str, ...] = ()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A user's repository with one pipeline; what it imports is forgotten after the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    folder = tmp_path / "pipelines" / "a"
    folder.mkdir(parents=True)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    for name in [name for name in sys.modules if name.partition(".")[0] == "pipelines"]:
        del sys.modules[name]


def found(folder: Path, source: str, reference: str = "mine_a:enrich", **arguments: Any):
    (folder / "mine_a.py").write_text(source)
    return load([Step(reference, arguments)], folder.parents[1], folder)


def refused(
    code: str, folder: Path, source: str, reference: str = "mine_a:enrich", **arguments: Any
) -> str:
    with raises(code, TransformError) as caught:
        found(folder, source, reference, **arguments)
    return str(caught.value)


def test_a_function_is_found_in_the_pipelines_folder(project):
    (function,) = found(project, "def enrich(frame, rate): return (frame, rate)", rate=2)
    assert function.call("f", **function.arguments) == ("f", 2)
    assert function.modules == ("mine_a",)


def test_a_function_is_found_below_pipelines(project):
    (project / "helper.py").write_text("VALUE = 7")
    reference = "pipelines.a.mine_a:enrich"
    source = "from pipelines.a.helper import VALUE\ndef enrich(frame): return VALUE"
    (function,) = found(project, source, reference)
    assert function.call("f") == 7
    assert set(function.modules) == {"pipelines.a.mine_a", "pipelines.a.helper"}


def test_a_file_of_the_user_does_not_stand_before_pythons(project):
    (project / "colorsys.py").write_text("raise RuntimeError")
    found(project, "import colorsys\ndef enrich(frame): return frame")


def test_a_missing_module_is_named_with_where_it_was_looked_for(project):
    told = refused("transform_module_missing", project, "", "nowhere.transform:enrich")
    assert "there is no module `nowhere`" in told
    assert "the folder that contains pipelines/" in told


def test_a_module_that_imports_a_missing_one_is_told_apart(project):
    told = refused("transform_import_failed", project, "import not_installed")
    assert "mine_a.py:1" in told
    assert "No module named 'not_installed'" in told


def test_a_module_that_fails_is_told_with_its_line(project):
    told = refused("transform_import_failed", project, "x = 1\ny = x / 0\n")
    assert "mine_a.py:2): ZeroDivisionError" in told


def test_a_type_as_text_needs_a_session_that_an_import_does_not_have(project: Path) -> None:
    text = "from pyspark.sql import functions as f\nat = f.udf(abs, 'DECIMAL(12,2)')\n"
    with raises("transform_import_failed") as caught:
        found(project, text)
    assert "DecimalType(12, 2)" in caught.value.hint


@pytest.mark.usefixtures("project")
def test_a_folder_may_have_sparks_name(tmp_path):
    folder = tmp_path / "pyspark-etl" / "pipelines" / "a"
    folder.mkdir(parents=True)
    told = refused("transform_import_failed", folder, "x = 1\ny = x / 0\n")
    assert "pyspark-etl/pipelines/a/mine_a.py:2): ZeroDivisionError" in told


def test_a_missing_function_suggests_the_nearest(project):
    source, reference = "def enrich_orders(frame): pass", "mine_a:enrich_order"
    told = refused("transform_function_missing", project, source, reference)
    assert "has no function `enrich_order` (did you mean `enrich_orders`?)" in told


def test_what_is_no_function_is_refused(project):
    assert "has type int" in refused("transform_not_callable", project, "enrich = 1")


@pytest.mark.parametrize(
    ("signature", "arguments", "message"),
    [
        ("frame, rate", {}, "needs the argument `rate`"),
        ("frame, *, rate", {}, "needs the argument `rate`"),
        ("frame, rate", {"rat": 1}, "has no argument `rat` (did you mean `rate`?) and needs"),
        ("frame", {"rate": 1}, "has no argument `rate`"),
        ("frame, rate=1", {"frame": 1}, "has no argument `frame`"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(project, signature, arguments, message):
    (project / "mine_a.py").write_text(f"def enrich({signature}): pass")
    with raises("transform_arguments_invalid", TransformError) as caught:
        load([Step("mine_a:enrich", arguments)], project.parents[1], project)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "source", ["def enrich(): pass", "def enrich(*, frame): pass", "enrich = max"]
)
def test_a_function_without_a_dataframe_is_rejected(project, source):
    refused("transform_signature_invalid", project, source)


@pytest.mark.parametrize(
    ("signature", "arguments"),
    [
        ("frame", {}),
        ("frame, rate=1", {}),
        ("frame, rate=1", {"rate": 2}),
        ("frame, **more", {"anything": 2}),
        ("*frames", {}),
    ],
)
def test_arguments_that_fit_are_taken(project, signature, arguments):
    (project / "mine_a.py").write_text(f"def enrich({signature}): pass")
    (function,) = load([Step("mine_a:enrich", arguments)], project.parents[1], project)
    assert function.arguments == arguments


@pytest.mark.parametrize("marks", [(), ("one",), ("two",), ("one", "two")])
def test_a_second_project_has_its_own_pipelines(project, marks):
    found_in = []
    for name in ("one", "two"):
        root = project.parents[1] / name
        folder = root / "pipelines" / name
        folder.mkdir(parents=True)
        if name in marks:
            (root / "pipelines" / "__init__.py").write_text("")
        (folder / "mine.py").write_text(f"def enrich(frame): return {name!r}")
        (function,) = load([Step(f"pipelines.{name}.mine:enrich")], root, folder)
        found_in.append(function.call("f"))
    assert found_in == ["one", "two"]


TYPED = """
from __future__ import annotations
import datetime
from typing import Literal, TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Rows
class Own: ...
def enrich(frame, rate: float, names: tuple[str, ...] = (), kind: Literal["a", "b"] = "a",
           since: datetime.date | None = None, own: Own | None = None): ...
def untold(frame: Rows, rate: int): ...
"""


def test_arguments_become_what_the_annotations_say(project):
    given = {"rate": 2, "names": ["x"], "kind": "b", "since": "2026-11-21", "own": {"a": 1}}
    (function,) = found(project, TYPED, **given)
    assert function.arguments["names"] == ("x",)
    assert str(function.arguments["since"]) == "2026-11-21"
    assert function.arguments["own"] == {"a": 1}, "what pydantic does not know is passed on"
    (function,) = found(project, TYPED, "mine_a:untold", rate="x")
    assert function.arguments == {"rate": "x"}, "names that only a type checker knows"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rate": "2"}, "does not accept '2' as `rate`: should be a valid number"),
        ({"rate": 1, "names": "x"}, "does not accept 'x' as `names`: should be a valid"),
        ({"rate": 1, "kind": "c"}, "does not accept 'c' as `kind`: should be 'a' or 'b'"),
        ({"rate": 1, "since": "today"}, "does not accept 'today' as `since`"),
        ({"rate": None, "nams": 1}, "has no argument `nams` (did you mean `names`?) and does"),
    ],
)
def test_what_does_not_fit_an_annotation_is_told(project, arguments, words):
    assert words in refused("transform_arguments_invalid", project, TYPED, **arguments)


def test_tables_are_arguments_that_come_with_the_call(project):
    (project / "mine_a.py").write_text("def joined(frame, rates, times=1): ...")

    def loaded(tables: tuple[str, ...], **arguments: int):
        step = Step("mine_a:joined", arguments, tables=tables)
        return load([step], project.parents[1], project)[0]

    taken = loaded(("rates",), times=2)
    assert (taken.tables, taken.arguments) == (("rates",), {"times": 2})
    for tables, told in (((), "needs the argument `rates`"), (("rate",), "has no argument `rate`")):
        with raises("transform_arguments_invalid", TransformError) as caught:
            loaded(tables)
        assert told in caught.value.message
    with raises("transform_arguments_invalid", TransformError) as caught:
        loaded(("rates",), rates=2)
    assert "gets `rates` twice" in caught.value.message
