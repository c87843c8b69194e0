"""The lock, the cache and what a failed download says."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from eos.cache import cache_root
from eos.local import jar_download, relock
from eos.local.jars import (
    BROKER,
    BROKER_VERSIONS,
    SPARK,
    SPARK_VERSIONS,
    STORES,
    YARN,
    Jar,
    is_present,
    of_broker,
    of_delta,
    of_spark,
    read_lock,
    write_lock,
)


def test_the_lock_is_what_pyproject_asks_for() -> None:
    """If this fails: `python -m eos.local.relock`."""
    locked: dict[str, list[str]] = {}
    for jar in read_lock():
        locked.setdefault(jar.purpose, []).append(jar.coordinate)
    assert locked == relock.coordinates()
    brokers = {name for version in BROKER_VERSIONS for name in of_broker(version)}
    on_spark = {name for each in SPARK_VERSIONS for name in (*of_spark(each), *of_delta(each))}
    assert set(locked) == {*STORES, YARN, *on_spark, *brokers}


def test_the_lock_reads_back_what_was_written(tmp_path: Path) -> None:
    jars = (Jar(SPARK, "g:a:1", 5, "ab"), Jar(BROKER, "g:a:2", 6, "cd"))
    write_lock(jars, tmp_path / "lock")
    assert read_lock(tmp_path / "lock") == jars


def test_two_versions_of_one_jar_are_two_files() -> None:
    coordinates = {jar.coordinate: jar.name for jar in read_lock()}
    assert len(set(coordinates.values())) == len(coordinates)


@pytest.fixture
def jar() -> Jar:
    return Jar(SPARK, "g:a:1", 5, hashlib.sha256(b"12345").hexdigest())


def test_a_jar_of_another_size_is_not_present(jar: Jar, tmp_path: Path) -> None:
    assert not is_present(jar, tmp_path)
    (tmp_path / jar.name).write_bytes(b"1234")
    assert not is_present(jar, tmp_path)
    (tmp_path / jar.name).write_bytes(b"12345")
    assert is_present(jar, tmp_path)


def test_a_jar_of_the_same_size_with_other_bytes_is_not_present(jar: Jar, tmp_path: Path) -> None:
    path = tmp_path / jar.name
    path.write_bytes(b"54321")
    assert not is_present(jar, tmp_path)
    path.write_bytes(b"12345")
    assert is_present(jar, tmp_path)
    before = path.stat()
    path.write_bytes(b"54321")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a careful forger does
    assert not is_present(jar, tmp_path)


def test_a_jar_that_did_not_change_is_read_once(
    jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / jar.name).write_bytes(b"12345")
    assert is_present(jar, tmp_path)
    monkeypatch.delattr(Path, "read_bytes")
    assert is_present(jar, tmp_path)
    other = replace(jar, sha256="0" * 64)  # of a newer lock
    with pytest.raises(AttributeError):
        is_present(other, tmp_path)


def test_a_cache_that_is_read_only_is_checked_each_time(
    jar: Jar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / jar.name).write_bytes(b"12345")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    assert is_present(jar, tmp_path)
    (tmp_path / jar.name).write_bytes(b"54321")
    assert not is_present(jar, tmp_path)


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
    monkeypatch.delenv(jar_download.REPOSITORY, raising=False)
    assert jar_download.repository() is None
    settings = tmp_path / ".m2" / "settings.xml"
    settings.parent.mkdir()
    settings.write_text(
        '<settings xmlns="urn:x"><mirrors>'
        "<mirror><mirrorOf>jcenter</mirrorOf><url>http://no.example</url></mirror>"
        "<mirror><mirrorOf>central</mirrorOf><url>http://yes.example</url></mirror>"
        "</mirrors></settings>"
    )
    assert jar_download.repository() == "http://yes.example"
    monkeypatch.setenv(jar_download.REPOSITORY, "http://mine.example")
    assert jar_download.repository() == "http://mine.example"
    settings.write_text("<broken")
    monkeypatch.delenv(jar_download.REPOSITORY)
    assert jar_download.repository() is None


def test_a_failed_download_names_the_address_and_the_first_error_of_a_long_log(
    jar: Jar, tmp_path: Path
) -> None:
    """The log quotes what a server answers. In whole, its longest line would take minutes."""
    (tmp_path / "ivy-0").mkdir()
    lines = ["https://repo.example/g/a/1/a-1.jar", "x" * 300_000, "\tjava.net.ConnectException: no"]
    (tmp_path / "ivy-0" / "log").write_text("\n".join(lines))
    told = jar_download._failure([jar], {}, tmp_path).message
    assert "g:a:1 from https://repo.example/g/a/1/a-1.jar" in told
    assert "first error of the client: ConnectException: no" in told


def test_a_download_that_takes_too_long_is_no_jar_that_is_missing(jar: Jar, tmp_path: Path) -> None:
    told = jar_download._failure([jar], {}, tmp_path, is_late=True).message
    assert "not complete after 15 minutes" in told
    assert "the repository does not have" not in told
