"""A release as a user gets it: built from what git knows, installed by checksums, and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support import release
from support.docs import blocks

from eos.native import library

pytestmark = pytest.mark.long
NO_INDEX = {"PIP_NO_INDEX": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    release.build(folder)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def shell(folder: Path, command: str, **extra: str) -> str:
    """Run a command as a user does: none of this test's own variables is set."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("EOS_", "PYTHON"))}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**inherited, **extra},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(folder: Path) -> None:
    """It was built from the source distribution, so that has them, too."""
    with zipfile.ZipFile(only(folder, "*.whl")) as archive:
        packed = {name for name in archive.namelist() if name.startswith("eos/")}
    assert packed == set(release.tracked("eos"))
    assert {f"eos/native/{name}" for name in library.SOURCES} <= packed


def test_the_source_distribution_has_the_pages_that_the_readme_names(folder: Path) -> None:
    with tarfile.open(only(folder, "*.tar.gz")) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    pages = re.findall(r"`([\w/]+\.md)`", (release.ROOT / "README.md").read_text())
    assert len(pages) > 10  # fewer: the pattern finds nothing any more
    assert {"LICENSE", "CHANGELOG.md", *pages} <= packed


def test_a_file_with_another_checksum_is_refused(folder: Path, tmp_path: Path) -> None:
    wheel = only(folder, "*.whl")
    (tmp_path / wheel.name).write_bytes(wheel.read_bytes() + b"\0")
    own = release.requirement(release.version(), [wheel])
    (tmp_path / "own.txt").write_text(own)
    pip = f"{sys.executable} -m pip download --no-deps --find-links"
    shell(tmp_path, f"{pip} {folder} -d taken -r own.txt", **NO_INDEX)
    with pytest.raises(AssertionError, match="DO NOT MATCH THE HASHES"):
        shell(tmp_path, f"{pip} {tmp_path} -d taken-2 -r own.txt", **NO_INDEX)


@pytest.mark.nightly  # test_init.py has an installation in a fresh environment, too
def test_an_environment_of_checksums_runs_a_pipeline(folder: Path, tmp_path: Path) -> None:
    """By the commands of docs/install.md. Nothing of it is of this checkout or its environment."""
    commands = dict(blocks("bash"))["install.md-1"]
    assert commands.count("--require-hashes") == 2  # build tools, and the rest
    script = commands.replace("python3 -m venv .venv", f"{sys.executable} -m venv {tmp_path}/.venv")
    script = script.replace(". .venv/", f". {tmp_path}/.venv/")
    told = shell(folder, f"set -e\n{script}")
    assert told.splitlines()[-1] == f"eos {release.version()}"
    activated = f"{tmp_path / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    shell(tmp_path, "eos init shop", PATH=activated)
    assert (tmp_path / "shop" / "requirements.txt").read_text() == (
        f"spark-eos[testing]=={release.version()}\n"
    )
    told = shell(tmp_path / "shop", "eos run pipelines/shop", PATH=activated)
    assert told == "paid orders in shop.out: 999 expected, 999 found; 0 lost; 0 too many\n"
