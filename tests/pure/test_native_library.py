"""Where the native library comes from, and what happens if it is damaged or can't be built."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.verbs import doctor

from eos.launch import native_library, shipping
from eos.launch.native_library import ensure_native
from eos.native import build, library

CHECKOUT = Path(__file__).parents[2]
STATUS = """
import json
from eos.native import library
found = library.status()
print(json.dumps([found.library is not None, found.origin, found.path, found.problem]))
"""
NO_MEMORY_FILES = "import os; del os.memfd_create\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, on a machine without a network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(library.DISABLED, raising=False)
    offline = f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); exit('no route to the index')"
    monkeypatch.setattr(native_library, "_pip", lambda: [sys.executable, "-c", offline])
    return library.cache_folder()


@pytest.fixture(scope="module")
def compiler() -> list[str]:
    found = build.compiler()
    if found is None:
        pytest.skip("this machine has no C compiler")
    return found


@pytest.fixture(scope="module")
def compiled(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.build(tmp_path_factory.mktemp("compiled"), compiler)


@pytest.fixture
def built(compiled: Path, cache: Path) -> Path:
    """The library in the cache, as an earlier run has built it."""
    shutil.copytree(compiled.parent, cache)
    return cache / compiled.name


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def status(path: Path = CHECKOUT, before: str = "") -> tuple[bool, str, str, str]:
    """What another process finds."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", before + STATUS],
        env={"PYTHONPATH": str(path), "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]},
        cwd="/",  # Python would import eos from here first
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout))


@pytest.mark.usefixtures("compiler")
def test_a_launch_builds_it_once_and_workers_load_it(cache: Path) -> None:
    assert not status()[0]
    built = ensure_native()
    assert (built.origin, Path(built.path).parent) == ("cache", cache)
    assert cache.stat().st_mode & 0o077 == 0
    assert status() == (True, "cache", built.path, "")
    before = Path(built.path).stat().st_ino
    ensure_native()
    assert Path(built.path).stat().st_ino == before
    names = {path.name for path in cache.iterdir()}
    name = library.file_name()
    assert names == {"build.lock", name, library.checksum_name(name)}


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "no checksum", "a folder"])
def test_a_damaged_file_is_not_loaded(built: Path, damage: str) -> None:
    content = bytearray(built.read_bytes())
    content[len(content) // 2] ^= 0xFF
    if damage == "no checksum":
        built.with_name(library.checksum_name(built.name)).unlink()
    elif damage == "a folder":
        built.unlink()
        built.mkdir()
    else:
        size = {"truncated": len(content) // 2, "empty": 0}.get(damage, len(content))
        built.write_bytes(content[:size])
    is_loaded, _, _, problem = status()
    assert not is_loaded
    assert problem


@pytest.mark.usefixtures("compiler")
def test_a_damaged_file_is_built_again(built: Path) -> None:
    built.write_bytes(b"damaged")
    assert ensure_native().origin == "cache"
    assert status()[0]


@pytest.mark.usefixtures("compiler")
def test_libraries_of_old_releases_are_removed(cache: Path) -> None:
    cache.mkdir(parents=True)
    for age in range(12):
        for name in (f"{age}.so", f"{age}.so.sha256", f"{age}.so.failed"):
            (cache / name).touch()
            os.utime(cache / name, (0, 1000 - age))
    built = Path(ensure_native().path).name
    left = {path.name for path in cache.glob("*.so")}
    assert left == {built, *(f"{age}.so" for age in range(7))}
    assert {path.name.partition(".so")[0] + ".so" for path in cache.glob("*.so.*")} == left


def test_a_library_with_another_interface_is_replaced(cache: Path, compiler: list[str]) -> None:
    """The checksum is right, and so is the name."""
    name = library.file_name()
    cache.mkdir(parents=True)
    (cache / "other.c").write_text("long long eos_decode(void) { return 99; }\n")
    subprocess.run(
        [*compiler, "-shared", "-fPIC", "-o", cache / name, cache / "other.c"], check=True
    )
    checksum = hashlib.sha256((cache / name).read_bytes()).hexdigest()
    (cache / library.checksum_name(name)).write_text(checksum)
    assert "lacks a function" in status()[3]
    assert ensure_native().library is not None
    assert status()[0]


@pytest.mark.usefixtures("no_compiler")
def test_a_failure_is_one_line_and_is_not_repeated_for_a_day(tmp_path, cache, capsys) -> None:
    def lines() -> list[str]:
        return [line for line in capsys.readouterr().err.splitlines() if "not built" in line]

    def attempts() -> int:
        return len((tmp_path / "asked").read_text())

    assert ensure_native().library is None
    (line,) = lines()
    assert "no C compiler on PATH" in line
    assert "no route to the index" in line
    assert ensure_native().library is None
    assert (lines(), attempts()) == ([], 1)
    assert native_library.last_failure() in line
    failed = next(cache.glob("*.failed"))
    os.utime(failed, (0, failed.stat().st_mtime - 25 * 3600))
    ensure_native()
    assert attempts() == 2
    ensure_native(is_forced=True)
    assert attempts() == 3
    assert not list(cache.glob("compiler-*"))


def test_without_a_home_folder_there_is_no_library_and_no_error(monkeypatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(library, "_in_package", lambda _: None)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    found = library.find()
    assert found.library is None
    assert "no home folder" in found.problem
    assert ensure_native().library is None


@pytest.mark.parametrize("script", ["exit 1", "echo broken >&2; exit 1", "true", "exec sleep 0.1"])
def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path, cache, monkeypatch, script) -> None:
    fake = tmp_path / "cc"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(build.BuildError):
        build.build(cache, [str(fake)])
    assert not list(cache.iterdir())
    assert ensure_native().library is None


def test_a_compiler_that_makes_no_library_is_noticed(tmp_path, cache) -> None:
    fake = tmp_path / "cc"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo hello > "$2"\n')
    fake.chmod(0o755)
    with pytest.raises(build.BuildError, match="can't be loaded"):
        build.build(cache, [str(fake)])
    assert not list(cache.iterdir())


@pytest.mark.usefixtures("compiler")
def test_it_can_be_disabled(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv(library.DISABLED, "off")
    assert ensure_native().problem == "EOS_NATIVE=off disables it"
    assert not cache.exists()


@pytest.mark.usefixtures("compiler")
def test_processes_that_start_together_build_one(cache: Path) -> None:
    program = "from eos.launch.native_library import ensure_native as n; print(n().origin)"
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", program]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [each.communicate()[0] for each in running] == ["cache\n"] * 3
    assert len(list(cache.glob("*.so"))) == 1


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("before", ["", NO_MEMORY_FILES])
def test_executors_load_it_out_of_the_shipped_zip(tmp_path, monkeypatch, before) -> None:
    """They have no cache, and perhaps no place to write."""
    archive = shipping.eos_zip(tmp_path / "ship", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing"))
    name = library.file_name()
    expected = (True, "package", f"{archive}/eos/native/lib/{name}", "")
    assert status(archive, before) == expected
    assert not (tmp_path / "nothing").exists()


@pytest.mark.usefixtures("no_compiler")
def test_a_zip_without_it_has_its_sources_only(tmp_path: Path) -> None:
    archive = shipping.eos_zip(tmp_path / "ship", tmp_path)
    assert status(archive) == (False, "", "", "it was not built on this machine")


def native_line(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert doctor(["--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    return next(each for each in checks if each["what"] == "native")


def test_doctor_has_a_line_about_it(tmp_path, monkeypatch, capsys, cache) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yaml").write_text("state: {root: state}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(library, "status", library.find)  # this process has another one already
    line = native_line(capsys)
    assert (line["level"], "eos fetch" in line["remedy"]) == (
        "note",
        True,
    )
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        ensure_native()
    assert "no route to the index" in native_line(capsys)["says"]
    monkeypatch.setenv(library.DISABLED, "off")
    assert native_line(capsys)["remedy"] == "unset EOS_NATIVE to use it"
    monkeypatch.delenv(library.DISABLED)
    if build.compiler() is not None:
        ensure_native(is_forced=True)
        line = native_line(capsys)
        assert (line["level"], str(cache) in line["says"]) == ("ok", True)
