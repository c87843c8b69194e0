"""Each verb takes a pipeline by its file, its folder, or its name inside its project."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.errors import raises

from eos.cli import run
from eos.cli.lint import find, lint
from eos.cli.main import command
from eos.cli.pipeline_argument import file_of
from eos.errors import UsageError

TEXT = "version: 1\nname: {name}\nsource: {{kafka: {{topic: a}}}}\nsink: {{kafka: {{topic: b}}}}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`one` lies in a folder of another name, and `wrong` has a wrong word."""
    for folder, name, more in (("orders", "one", ""), ("wrong", "wrong", "trigger: {every: 1}\n")):
        place = tmp_path / "pipelines" / folder
        place.mkdir(parents=True)
        (place / "pipeline.yaml").write_text(TEXT.format(name=name) + more)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("project")
def test_lint_and_test_take_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["lint", "one"])() == 0
    assert "1 pipeline without problems" in capsys.readouterr().err
    for verb in ("lint", "test"):
        assert command([verb, "wrong"])() == 1
        told = capsys.readouterr().out
        assert "pipelines/wrong/pipeline.yaml:5:18: expected a duration" in told


@pytest.mark.usefixtures("project")
def test_run_takes_a_name_and_hands_on_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[list[str]] = []
    monkeypatch.setattr(run, "become", handed.append)
    for words in (["one", "--once"], ["pipelines/orders"], ["--help"]):
        command(["run", *words])()
    assert handed == [
        ["pipelines/orders/pipeline.yaml", "--once"],
        ["pipelines/orders"],
        ["--help"],
    ]


@pytest.mark.usefixtures("project")
def test_a_folder_without_a_pipeline_is_not_meant_where_a_pipeline_has_its_name() -> None:
    Path("one").mkdir()
    assert file_of("one") == Path("pipelines/orders/pipeline.yaml")
    assert file_of("README.md") == Path("README.md")
    with raises("pipeline_not_found", UsageError):
        file_of("none")


def test_two_files_of_one_name_are_a_warning_within_one_project(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (project / "pipelines" / each for each in ("orders", "two"))
    two.mkdir()
    (two / "pipeline.yaml").write_text(TEXT.format(name="one"))
    elsewhere = project / "elsewhere" / "pipelines" / "one"
    elsewhere.mkdir(parents=True)
    (elsewhere / "pipeline.yaml").write_text(TEXT.format(name="one"))
    assert lint([one, two, elsewhere], as_json=False) == 0  # dev and prod may have one
    (told,) = capsys.readouterr().out.splitlines()
    assert told.startswith(f"{two}/pipeline.yaml:2:7: warning: `one` is also the name of {one}/")
    assert "both would use one ledger, group and transactional id" in told
    assert lint([one, one / "pipeline.yaml", elsewhere], as_json=False) == 0
    assert list(find(two)) == []
