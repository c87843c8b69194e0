"""Which Java is taken, and the wrapper before the wheel's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.errors import raises

from eos.local import java


def home_of(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    binary.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25.0.1", 25)]
)
def test_the_version_comes_from_the_release_file_or_from_java_itself(
    tmp_path: Path, version: str, major: int
) -> None:
    home = home_of(tmp_path / "java", version)
    assert java.version_of(home) == major
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.2"\n')
    assert java.version_of(home) == 21


def test_java_home_goes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home_of(tmp_path / "a", "21.0.1")))
    monkeypatch.setenv("PATH", str(home_of(tmp_path / "b", "17.0.1") / "bin"))
    found = java.find_java()
    assert (found.home, found.version, found.origin) == (tmp_path / "a", 21, "JAVA_HOME")


def test_an_unfit_java_home_is_passed_over_for_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home_of(tmp_path / "a", "11.0.1")))
    monkeypatch.setenv("PATH", str(home_of(tmp_path / "b", "17.0.1") / "bin"))
    assert java.find_java().home == tmp_path / "b"


def test_without_any_the_message_names_what_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home_of(tmp_path / "a", "11.0.1")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_from_wheel", lambda: None)
    with raises("java_missing") as caught:
        java.find_java()
    assert "Java 11" in caught.value.message
    assert "JAVA_HOME" in caught.value.hint


def test_the_wrapper_drops_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    (real / "bin" / "java").chmod(0o755)
    home = java.wrap(real, tmp_path / "wrapped")
    done = subprocess.run(
        [
            *(home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector"),
            *("", "*", "Main", "--add-modules=other"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:-1] == [
        *("<-cp>", "<a b>", "<>", "<*>", "<Main>", "<--add-modules=other>"),
    ]
