"""When a class-data archive is made, used, made anew and removed. Shell scripts stand for JVMs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.waiting import wait_until

from eos.local import class_archive_maker
from eos.local.class_archive import Archive, archive_of
from eos.local.java import Java


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are; the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "spark-eos" / "archives"


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    listed = tmp_path / "classes"
    listed.write_text("java/lang/Object\n")
    return listed


def made_by(one: Archive, script: str = 'cat "$LIST" > "$ARCHIVE"') -> tuple[list[str], dict]:
    """A command for `make_later`; as the JVM, it learns the two paths from its options."""
    listed, made = (word.partition("=")[2] for word in one.dump_options[1:])
    return ["sh", "-c", script], {**os.environ, "LIST": listed, "ARCHIVE": made}


def make(one: Archive, classes: Path, folder: Path) -> Path:
    one.make_later(classes, *made_by(one))
    wait_until(lambda: not list(folder.glob("*.making")), "it is still being made")
    (made,) = folder.glob(f"{one.program}-{one.key}-*.jsa")
    return made


def test_the_first_run_lists_and_the_next_ones_use(folder: Path, classes: Path) -> None:
    one = Archive("program", "k1")
    assert one.options(classes) == [f"-XX:DumpLoadedClassList={classes}"]
    assert one.options() == []
    made = make(one, classes, folder)
    assert made.read_text() == classes.read_text()
    for options in (one.options(classes), one.options()):
        assert options[0] == f"-XX:SharedArchiveFile={made}"
        assert "-Xshare:auto" in options
    assert Archive("program", "k2").options() == []


def test_nothing_is_made_without_a_list_or_twice(folder: Path, classes: Path) -> None:
    one = Archive("program", "k1")
    one.make_later(classes.with_name("none"), *made_by(one))
    assert not list(folder.glob("*"))
    made = make(one, classes, folder)
    one.make_later(classes, *made_by(one, "exit 1"))
    assert list(folder.iterdir()) == [made]


@pytest.mark.parametrize("damage", ["cut", "longer", "another bit", "empty"])
def test_a_damaged_archive_is_removed_and_made_anew(
    folder: Path, classes: Path, damage: str
) -> None:
    one = Archive("program", "k1")
    made = make(one, classes, folder)
    whole = made.read_bytes()
    changed = {
        "cut": whole[:-1],
        "longer": whole + b"\0",
        "another bit": bytes([whole[0] ^ 1]) + whole[1:],
        "empty": b"",
    }
    made.write_bytes(changed[damage])
    assert one.options(classes) == [f"-XX:DumpLoadedClassList={classes}"]
    assert not made.exists()
    assert make(one, classes, folder).read_bytes() == whole


@pytest.mark.parametrize("script", ['echo half > "$ARCHIVE"; echo no room; exit 1', "echo no room"])
def test_who_can_not_make_it_leaves_a_log_and_nobody_tries_for_a_day(
    folder: Path, classes: Path, script: str
) -> None:
    one = Archive("program", "k1")
    one.make_later(classes, *made_by(one, script))
    (work,) = folder.glob("*.making")
    log = work / "log"
    wait_until(lambda: log.exists() and "no room" in log.read_text(), "it said nothing")
    wait_until(lambda: not (work / "archive").exists(), "half an archive was left")
    assert one.options(classes) == []
    one.make_later(classes, *made_by(one))
    assert list(folder.iterdir()) == [work]
    yesterday = time.time() - class_archive_maker.TRIED_S - 1
    os.utime(work, (yesterday, yesterday))
    assert one.options(classes) == [f"-XX:DumpLoadedClassList={classes}"]
    assert make(one, classes, folder).exists()


def test_one_of_many_makes_it(folder: Path, classes: Path, tmp_path: Path) -> None:
    one = Archive("program", "k1")
    begun, go = tmp_path / "begun", tmp_path / "go"
    script = f'echo x >> "{begun}"; until [ -e "{go}" ]; do sleep 0.01; done; echo a > "$ARCHIVE"'
    for _ in range(3):
        one.make_later(classes, *made_by(one, script))
    wait_until(begun.exists, "nobody began")
    assert one.options(classes) == []
    go.touch()
    wait_until(lambda: not list(folder.glob("*.making")), "it is still being made")
    assert begun.read_text() == "x\n"
    assert len(list(folder.iterdir())) == 1


def test_the_archives_used_last_are_kept(folder: Path, classes: Path) -> None:
    other = make(Archive("other", "k"), classes, folder)
    every = [Archive("program", f"k{number}") for number in range(class_archive_maker.KEPT + 1)]
    paths = {one.key: make(one, classes, folder) for one in every[:-1]}
    for number, path in enumerate(paths.values()):
        os.utime(path, (time.time() - 100 + number, time.time() - 100 + number))
    assert every[0].options(), "the eldest is used once more"
    make(every[-1], classes, folder)
    assert [bool(one.options()) for one in every] == [one is not every[1] for one in every]
    assert other.exists()


def test_a_cache_that_can_not_be_written_stops_nobody(folder: Path, classes: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("a file where the folder should be")
    one = Archive("program", "k1")
    assert one.options(classes) == []
    one.make_later(classes, ["false"], os.environ)


def test_another_java_or_jar_needs_another_archive(tmp_path: Path) -> None:
    java, jar = Java(tmp_path / "java", 17, "here"), tmp_path / "a.jar"
    jar.write_text("classes")
    java.modules.parent.mkdir(parents=True)
    java.modules.write_text("modules")
    keys = {archive_of("p", java, [jar]).key, archive_of("p", java, []).key}
    os.utime(jar, (1, 1))  # the JVM compares the time, too
    keys.add(archive_of("p", java, [jar]).key)
    java.modules.write_text("modules of an update")
    keys.add(archive_of("p", java, [jar]).key)
    keys.add(archive_of("p", Java(tmp_path, 17, "there"), [jar]).key)
    assert len(keys) == 5
    assert archive_of("p", java, [jar]).key in keys


def test_a_cache_that_can_not_be_written_has_no_archive_and_fails_nobody(
    folder: Path, classes: Path
) -> None:
    """As in an image with a read-only root file system. Root may write anywhere, but not here."""
    folder.parent.mkdir()
    folder.touch()
    one = Archive("program", "k1")
    assert one.options() == []
    one.make_later(classes, *made_by(one))
    assert folder.read_bytes() == b""
