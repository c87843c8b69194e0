"""The locks of Python packages: what pyproject.toml asks for, each file by its checksum."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from eos.launch import bootstrap, java_wheel, native_library, relock_python
from eos.launch.relock_python import (
    BUILD,
    CHECKOUT,
    COMPILER,
    DOCS,
    JAVA,
    PYTHONS,
    TESTS,
    USERS,
)

LOCKS = (BUILD, USERS, JAVA, COMPILER, TESTS, DOCS)


def releases(lock: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Each line with its checksums."""
    text = (CHECKOUT / lock).read_text(encoding="ascii").replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            words, *hashes = line.split("--hash=sha256:")
            yield Requirement(words), [each.strip() for each in hashes]


def holds(marker: Marker | None, python: str) -> bool:
    return marker is None or marker.evaluate({"python_version": python})


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_what_pyproject_asks_for(lock: str) -> None:
    """If this fails: `python -m eos.launch.relock_python`."""
    assert relock_python.requirements()[lock]
    for python in PYTHONS:
        locked = {
            canonicalize_name(each.name): next(iter(each.specifier)).version
            for each, _ in releases(lock)
            if holds(each.marker, python)
        }
        for text in relock_python.requirements()[lock]:
            wanted = Requirement(text)
            if holds(wanted.marker, python):
                version = locked[canonicalize_name(wanted.name)]
                assert wanted.specifier.contains(version), (python, text, version)


@pytest.mark.parametrize("lock", LOCKS)
def test_each_release_is_exact_and_has_checksums(lock: str) -> None:
    found = list(releases(lock))
    assert found
    for each, hashes in found:
        assert re.fullmatch(r"==[0-9][^*]*", str(each.specifier)), each
        assert hashes, each
        assert all(re.fullmatch(r"[0-9a-f]{64}", one) for one in hashes), each


def test_the_tests_environment_has_the_users_releases() -> None:
    tests = {str(each): hashes for each, hashes in releases(TESTS)}
    for each, hashes in releases(USERS):
        assert tests[str(each)] == hashes


def test_the_locks_are_those_that_are_installed() -> None:
    assert bootstrap.BUILD_LOCK == BUILD
    assert set(bootstrap.LOCKS.values()) == {USERS, TESTS}
    assert java_wheel.JAVA_LOCK == CHECKOUT / JAVA
    assert native_library.COMPILER_LOCK == CHECKOUT / COMPILER
    assert "--require-hashes" in java_wheel._command()
    assert "--require-hashes" in native_library._pip()
    assert DOCS in (CHECKOUT / ".ci" / "docs").read_text(encoding="utf-8")
    assert "--require-hashes" in (CHECKOUT / ".ci" / "docs").read_text(encoding="utf-8")
    package_data = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"launch/*.lock"' in package_data
    assert Path(JAVA).parent == Path("eos/launch")


@pytest.mark.parametrize("arguments", [["doc"], ["docs", "project"]])
def test_an_unknown_group_of_locks_changes_nothing(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert relock_python.main(arguments) == 2
    assert "[project|docs|sparks]" in capsys.readouterr().err
