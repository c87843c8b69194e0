"""Build a release: `PYTHONPATH=tests python -m support.release FOLDER [TAG]`.

FOLDER gets the source distribution, the wheel that was built from it, and two requirement files
with the checksums of all packages, for `pip install --require-hashes` (docs/install.md). With TAG,
such as `v0.1.0`, the version and the changelog must be those of the tag.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from eos.launch import relock_python
from support.docs import ROOT, toml

BUILD_REQUIREMENTS, REQUIREMENTS = "requirements-build.txt", "requirements.txt"
RELEASED = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$", re.MULTILINE)
_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def version() -> str:
    return str(toml.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def tracked(*paths: str) -> list[str]:
    """Return the names of the files that git knows, as a release has nothing else."""
    command = ["git", "ls-files", "-z", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


def build(folder: Path) -> tuple[Path, Path]:
    """Write a release's files into a new folder. Return the source distribution and the wheel."""
    folder = folder.resolve()
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        sources = Path(name)
        for each in tracked():
            (sources / each).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / each, sources / each)
        _run([sys.executable, "-c", _SDIST, str(folder)], sources)
    (sdist,) = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    _run([*pip, *options, str(sdist)], folder)
    (wheel,) = folder.glob("*.whl")
    shutil.copy(ROOT / relock_python.BUILD, folder / BUILD_REQUIREMENTS)
    own = requirement(version(), [sdist, wheel])
    locked = (ROOT / relock_python.USERS).read_text(encoding="ascii")
    (folder / REQUIREMENTS).write_text(locked + own, encoding="ascii")
    return sdist, wheel


def requirement(of: str, files: Iterable[Path]) -> str:
    """Return the requirement that accepts these files of the version and no others."""
    hashes = sorted(hashlib.sha256(each.read_bytes()).hexdigest() for each in files)
    lines = [f"spark-eos=={of}", *(f"--hash=sha256:{each}" for each in hashes)]
    return " \\\n    ".join(lines) + "\n"


def mismatch(tag: str, of: str, changelog: str) -> str:
    """Return why the tag can't be released, or an empty text."""
    if tag != f"v{of}":
        return f"the tag is {tag}, but pyproject.toml has version {of}"
    newest = RELEASED.search(changelog)
    if newest is None or newest[1] != of:
        found = newest[1] if newest else "none"
        return f"the newest release in CHANGELOG.md is {found}, not {of}"
    return ""


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, stdout=sys.stderr, check=True)


def main(arguments: list[str]) -> int:
    folder, *tags = arguments
    for tag in tags:
        reason = mismatch(tag, version(), (ROOT / "CHANGELOG.md").read_text())
        if reason:
            print(f"not built: {reason}", file=sys.stderr)
            return 1
    for path in build(Path(folder)):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
