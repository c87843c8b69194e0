"""The lock, the cache and what a failed download says."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.launch import download, relock
from eos.launch.cache import cache_root
from eos.launch.jars import (
    BROKER,
    BROKER_VERSIONS,
    DELTA,
    SPARK,
    STORES,
    Jar,
    is_present,
    of_broker,
    read_lock,
    write_lock,
)


def test_the_lock_is_what_pyproject_asks_for() -> None:
    """If this fails: `python -m eos.launch.relock`."""
    locked: dict[str, list[str]] = {}
    for jar in read_lock():
        locked.setdefault(jar.purpose, []).append(jar.coordinate)
    assert locked == relock.coordinates()
    brokers = {name for version in BROKER_VERSIONS for name in of_broker(version)}
    assert set(locked) == {SPARK, *STORES, DELTA} | brokers


def test_the_lock_reads_back_what_was_written(tmp_path: Path) -> None:
    jars = (Jar(SPARK, "g:a:1", 5, "ab"), Jar(BROKER, "g:a:2", 6, "cd"))
    write_lock(jars, tmp_path / "lock")
    assert read_lock(tmp_path / "lock") == jars


def test_two_versions_of_one_jar_are_two_files() -> None:
    coordinates = {jar.coordinate: jar.name for jar in read_lock()}
    assert len(set(coordinates.values())) == len(coordinates)


def test_a_jar_of_another_size_is_not_present(tmp_path: Path) -> None:
    jar = Jar(SPARK, "g:a:1", 5, "")
    assert not is_present(jar, tmp_path)
    (tmp_path / jar.name).write_bytes(b"1234")
    assert not is_present(jar, tmp_path)
    (tmp_path / jar.name).write_bytes(b"12345")
    assert is_present(jar, tmp_path)


@pytest.mark.parametrize("given", ["relative", ""])
def test_the_cache_is_below_home_unless_xdg_names_an_absolute_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert cache_root() == tmp_path / ".cache" / "spark-eos"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "spark-eos"


def test_the_repository_is_the_users_choice_then_the_mirror_then_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(download.REPOSITORY, raising=False)
    assert download.repository() is None
    settings = tmp_path / ".m2" / "settings.xml"
    settings.parent.mkdir()
    settings.write_text(
        '<settings xmlns="urn:x"><mirrors>'
        "<mirror><mirrorOf>jcenter</mirrorOf><url>http://no.example</url></mirror>"
        "<mirror><mirrorOf>central</mirrorOf><url>http://yes.example</url></mirror>"
        "</mirrors></settings>"
    )
    assert download.repository() == "http://yes.example"
    monkeypatch.setenv(download.REPOSITORY, "http://mine.example")
    assert download.repository() == "http://mine.example"
    settings.write_text("<broken")
    monkeypatch.delenv(download.REPOSITORY)
    assert download.repository() is None
