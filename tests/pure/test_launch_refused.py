"""A pipeline file that can't run is refused before a broker, a JVM, or anything that they need."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eos.cli import run
from eos.cli.lint import lint
from eos.cli.run import command, refuse_wrong
from eos.launch import startup_signals, submit

PIPELINE = """\
version: 1
name: orders
source: {kafka: {topic: orders, max_records: 5}}
transform: [{python: "launched_steps:passed"}]
sink: {kafka: {topic: out}}
"""
STEPS = "def passed(rows): return rows\n"
NOT_SET = "`UNSET_HERE`, which is not set"


class ReachedError(BaseException):
    """The launcher came to what it does for a file that may run."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "pipelines" / "orders"
    folder.mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "launched_steps.py").write_text(STEPS)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yaml").write_text("state: {root: state}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a project's folders stay on it

    def reached() -> None:
        raise ReachedError

    monkeypatch.setattr(submit, "ensure_java", reached)
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:  # the packages that a step's module lies in
        if name.partition(".")[0] in {"pipelines", "launched_steps", "launched_zip"}:
            del sys.modules[name]


def launch(project: Path, *words: str) -> int:
    return submit.main([str(project / "pipelines" / "orders"), *words], refuse_wrong)


@pytest.mark.parametrize(
    ("changed", "steps", "words", "told"),
    [
        ("trigger: {every: 1}\n", STEPS, (), ["yaml:6:18: expected a duration"]),
        ("", "def others(): ...\n", (), ["yaml:4:22: ", "has no function `passed`"]),
        ("", "def passed(rows: return rows\n", (), ["yaml:4:22: ", "SyntaxError"]),
        ("expect: ${UNSET_HERE}\n", "", (), ["2 problems", NOT_SET, "has no function"]),
        ("", STEPS, ("--profile", "none"), ["there is no profile 'none'"]),
        ("dedup: '${KPW}'\n", STEPS, ("--profile", "secret"), ["expected a mapping"]),
        ("output_mode: ${KPW}\n", STEPS, ("--profile", "secret"), ["`registry.password`"]),
    ],
)
def test_a_file_that_can_not_run_starts_nothing(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changed: str,
    steps: str,
    words: tuple[str, ...],
    told: list[str],
) -> None:
    monkeypatch.setenv("KPW", "update")
    folder = project / "pipelines" / "orders"
    (folder / "pipeline.yaml").write_text(PIPELINE + changed)
    (folder / "launched_steps.py").write_text(steps)
    registry = 'registry: {url: "https://a", user: b, password: "${KPW}"}\n'
    (project / "conf" / "secret.yaml").write_text(registry)
    assert launch(project, *words) == 2
    said = capsys.readouterr().err
    for word in told:
        assert word in said
    assert {each.name for each in project.iterdir()} == {"conf", "pipelines"}


@pytest.mark.parametrize("root", ["file", "file/state", "/proc/eosroot"])
def test_a_state_root_that_can_not_be_made(
    project: Path, capsys: pytest.CaptureFixture[str], root: str
) -> None:
    (project / "file").touch()
    (project / "conf" / "odd.yaml").write_text(f"state: {{root: {root}}}\n")
    assert launch(project, "--profile", "odd") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"eos: [state_root_unusable] the state root {Path(project, root)} ")
    assert "of profile 'odd'" in said


def test_a_file_that_may_run_does_and_other_modules_are_not_imported(project: Path) -> None:
    folder = project / "pipelines" / "orders"
    with (folder / "pipeline.yaml").open("a") as file:  # `ofset` may be anything to Spark
        file.write("expect: [{name: a, rule: ofset > 0}]\n")
    (folder / "launched_helper.py").write_text("open('imported', 'w').close()\n")
    # The other module may define `passed`. Only the driver imports it.
    for steps in (STEPS, "from launched_helper import *\ndef passes(rows): return rows\n"):
        (folder / "launched_steps.py").write_text(steps)
        with pytest.raises(ReachedError):
            launch(project)
    assert not (project / "imported").exists()


@pytest.mark.parametrize("name", ["launched_zip.steps", "launched_zip"])
def test_a_module_that_may_come_with_py_files_is_the_drivers_to_find(
    project: Path, name: str
) -> None:
    folder = project / "pipelines" / "orders"
    (project / "launched_zip").mkdir()  # no package: one in a file of --py-files goes before it
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("launched_steps", name))
    with pytest.raises(ReachedError):
        launch(project, "--py-files", "mylib.zip")


@pytest.mark.parametrize("name", ["pipelines.orders.gone", "pipelines.gone.x", "launched_steps.x"])
def test_a_module_that_only_the_project_can_have_is_looked_for(
    project: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = project / "pipelines" / "orders"
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("launched_steps", name))
    assert launch(project, "--py-files", "mylib.zip") == 2
    assert "there is no module" in capsys.readouterr().err


@pytest.mark.parametrize(
    "top", ["import os; os.environ['UNSET_HERE']", "raise SystemExit", "import launched_nowhere"]
)
@pytest.mark.parametrize("place", ["", "__init__.py"])
def test_a_module_that_can_not_be_imported_here_is_the_drivers_to_import(
    project: Path, capsys: pytest.CaptureFixture[str], place: str, top: str
) -> None:
    folder = project / "pipelines" / "orders"
    name = "pipelines.orders.steps"
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("launched_steps", name))
    (folder / "steps.py").write_text(STEPS)
    (folder / (place or "steps.py")).write_text(f"print('top')\n{top}\n{STEPS}")
    with pytest.raises(ReachedError):
        launch(project)
    said = capsys.readouterr()
    assert "top" not in said.out
    assert "Traceback" not in said.err
    assert lint([folder], as_json=True) == 1  # which has no driver to leave it to
    (found,) = json.loads(capsys.readouterr().out)["problems"]
    assert f"transform `{name}:passed` can't be imported" in found["message"]


def test_both_ways_to_run_one_refuse_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pipelines" / "orders" / "launched_steps.py").write_text("")
    path = project / "pipelines" / "orders" / "pipeline.yaml"
    # What ./spark-submit.sh becomes, too: see test_launch_bootstrap.py.
    assert command([str(path)]) == [sys.executable, "-m", "eos.cli.run", str(path)]
    monkeypatch.setattr(sys, "argv", ["run", str(path)])
    monkeypatch.setattr(
        startup_signals, "listen", lambda: None
    )  # this process is not the launcher's
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(run.__file__), run_name="__main__")
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("eos: [")
    assert f"{path}:4:22: " in said
    assert "has no function `passed`" in said
