"""Without EOS_OFFLINE=0 nothing is downloaded, and the error names the command that does it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.errors import raises

from eos import offline
from eos.errors import UsageError
from eos.launch import bootstrap, java_wheel, native_library
from eos.local import jar_download
from eos.local.jars import SPARK, Jar
from eos.native import build


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*words: object, **_: object) -> None:
        raise AssertionError(f"a program was started: {words}")

    monkeypatch.setenv(offline.VARIABLE, "1")
    monkeypatch.setattr(subprocess, "Popen", start)  # `subprocess.run` uses it, too


def test_jars_are_not_downloaded(tmp_path: Path) -> None:
    with raises("download_forbidden") as caught:
        jar_download.download([Jar(SPARK, "g:a:1", 2_000_000, "ab")], tmp_path)
    assert caught.value.message.startswith("1 jar (2 MB) must be downloaded to")
    assert "`eos fetch` without EOS_OFFLINE=1" in caught.value.hint
    assert str(tmp_path) in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_java_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> None:
        raise UsageError("java_missing", "there is no Java 17 or 21")

    monkeypatch.setattr(java_wheel, "find_java", find)
    with raises("download_forbidden") as caught:
        java_wheel.ensure_java()
    assert caught.value.message.startswith("there is no Java 17 or 21")
    assert "JAVA_HOME" in caught.value.hint


def test_a_compiler_is_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(build.BuildError, match="`eos fetch` downloads one"):  # noqa: SIM117 - as it is used
        with native_library._of_wheel():
            pass


def test_an_environment_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bootstrap.main([str(tmp_path), "testing", "stamp"]) == 2
    assert "EOS_OFFLINE forbids downloads" in capsys.readouterr().err
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(("value", "is_offline"), [("", True), ("0", False), ("1", True)])
def test_its_values(monkeypatch: pytest.MonkeyPatch, value: str, is_offline: bool) -> None:
    monkeypatch.setenv(offline.VARIABLE, value)
    assert offline.is_offline() == is_offline


def test_fetch_may_download_unless_it_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(offline.VARIABLE, "")
    with raises("download_forbidden") as caught:
        offline.require_online("2 jars are missing", "copy them")
    assert caught.value.hint.startswith("run `eos fetch`, which downloads what runs need; or set")
    offline.allow_downloads()
    assert not offline.is_offline()
    monkeypatch.setenv(offline.VARIABLE, "1")
    offline.allow_downloads()
    assert offline.is_offline()


def test_another_value_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(offline.VARIABLE, "yes")
    with raises("offline_unknown"):
        offline.is_offline()
