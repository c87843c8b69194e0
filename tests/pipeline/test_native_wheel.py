"""Machines without a C compiler: a wheel brings the library, or a compiler is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from eos.native import build, library

pytestmark = pytest.mark.long
CHECKOUT = Path(__file__).parents[2]
STATUS = "from eos.native import library; s = library.status(); print(s.origin, s.path, s.problem)"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """What a release is built from. The checkout itself stays as it is."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(CHECKOUT / "eos", folder / "eos", ignore=ignored)
    shutil.rmtree(folder / "eos" / "native" / "lib", ignore_errors=True)
    return folder


def wheel_of(sources: Path, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, *options, str(sources)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_a_wheel_brings_the_library(tmp_path: Path, sources: Path) -> None:
    compiler = build.compiler()
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    build.build(sources / "eos" / "native" / "lib", compiler)
    wheel = wheel_of(sources, tmp_path / "wheels")
    tag = wheel.name.split("-", 2)[2]
    assert tag.startswith("py3-none-")
    assert not tag.endswith("-any.whl")

    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", str(wheel)], check=True)
    (tmp_path / "bin").mkdir()
    done = subprocess.run(
        [str(python), "-I", "-c", STATUS],
        env={"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    origin, path = done.stdout.split()
    assert (origin, Path(path).name) == ("package", library.file_name())
    assert Path(path).is_relative_to(tmp_path / "venv")


@pytest.mark.nightly
def test_a_machine_without_a_compiler_downloads_one(tmp_path: Path) -> None:
    """Nothing of it is left but the library."""
    (tmp_path / "bin").mkdir()
    cache = tmp_path / "cache"
    environment = {**os.environ, "PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-m", "eos.launch.native_library"]
    subprocess.run(command, env=environment, cwd=CHECKOUT, check=True)
    name = library.file_name()
    names = {path.name for path in (cache / "spark-eos" / "native").iterdir()}
    assert names == {"build.lock", name, library.checksum_name(name)}


def test_a_wheel_without_a_library_is_for_any_platform(tmp_path: Path, sources: Path) -> None:
    wheel = wheel_of(sources, tmp_path / "wheels")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"eos/native/{name}" for name in library.SOURCES} <= names
