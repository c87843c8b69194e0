"""`eos recover`'s words: pipelines by path, folder or name; one verb; what is no use of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.verbs import recover

from eos.cli.pipeline_argument import find_pipeline
from eos.errors import UsageError
from eos.inspect.startup_stops import command_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In it: `one` in a folder of that name, `two` in one of another, and a broken one."""
    texts = {"one": "one", "three": "two", "broken": "Not A Name"}
    for folder, name in texts.items():
        place = tmp_path / "pipelines" / folder
        place.mkdir(parents=True)
        (place / "pipeline.yaml").write_text(
            f"version: 1\nname: {name}\n"
            "source: {kafka: {topic: a}}\nsink: {kafka: {topic: b}}\n"
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_pipeline_is_found_by_name_path_and_folder(project: Path, monkeypatch) -> None:
    for word in (
        "one",
        "pipelines/one",
        "pipelines/one/pipeline.yaml",
        str(project / "pipelines/one"),
    ):
        assert find_pipeline(word).name == "one"
    assert find_pipeline("two").folder.name == "three"
    assert find_pipeline("three").name == "two", "no pipeline has that name: the folder is meant"
    monkeypatch.chdir(project / "pipelines" / "one")
    assert find_pipeline("two").name == "two"


def test_a_name_goes_before_a_folder(project: Path) -> None:
    """The hint of a stop gives the name."""
    (project / "pipelines" / "three").rename(project / "pipelines" / "four")
    (project / "pipelines" / "one").rename(project / "pipelines" / "two")
    assert find_pipeline("two").folder.name == "four"
    assert find_pipeline("one").folder.name == "two"


@pytest.mark.parametrize("word", ["nobody", "nobody.yaml", "pipelines/nobody", "broken"])
@pytest.mark.usefixtures("project")
def test_what_is_not_there_or_broken_is_told(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_pipeline(word)
    assert word in caught.value.message


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["one", "--yes"],
        ["one", "--from-group", "--restore-group"],
        ["one", "--forget-topic"],
        ["one", "--rewind-to"],
        ["one", "--restore-tables"],
        ["one", "--accept-start", "--restore-tables"],
        ["one", "--accept"],
        ["one", "two"],
    ],
)
def test_what_can_not_be_meant_is_usage(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        recover(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: eos recover ")


def test_help_is_the_verbs_own(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        recover(["--help"])
    assert caught.value.code == 0
    told = capsys.readouterr().out
    for verb in ("--adopt-checkpoint", "--from-group", "--restore-group", "--forget-topic"):
        assert verb in told


def test_a_command_can_be_pasted_into_a_shell() -> None:
    command = command_of("my pipeline", ["--profile", "prod", "--why", "it's lost"])
    assert command("--accept-start") == (
        "eos recover 'my pipeline' --profile prod --why 'it'\"'\"'s lost' --accept-start"
    )
    assert command_of("one", [])("") == "eos recover one"
