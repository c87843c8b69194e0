"""The installation of a checkout's environment, `.venv`.

It is run as `python bootstrap.py CHECKOUT EXTRA STAMP_TEXT` before anything is installed, by any
Python from 3.10 on. So it uses the standard library only and imports nothing of eos. After a
complete installation it writes STAMP_TEXT into a file in `.venv`; without that file, the next run
resumes the installation. One process installs at a time; others wait and find the file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# The extras of pyproject.toml that are complete after one of them is installed: `test`, for this
# project's own tests, includes `testing`, the test kit for users.
CONTAINS = {"testing": ("testing",), "test": ("test", "testing")}
# Lock files (relock_python.py): pinned releases of Python packages with their files' checksums.
BUILD_LOCK = "eos/launch/build.lock"
LOCKS = {"testing": "eos/launch/python.lock", "test": "tests/requirements.lock"}
UNPINNED = "EOS_UNPINNED"  # if set, install any releases that pyproject.toml allows, not the locks
OFFLINE = "EOS_OFFLINE"  # as in eos/offline.py
_FIT = "import pip, sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))"


def main(arguments: list[str]) -> int:
    checkout, extra, required = Path(arguments[0]), arguments[1], arguments[2]
    venv = checkout / ".venv"
    (checkout / ".eos").mkdir(mode=0o700, exist_ok=True)
    with open(checkout / ".eos" / "venv.lock", "w", opener=_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits until another installing process has ended
        if _stamp(venv, extra) == required:
            return 0
        if os.environ.get(OFFLINE, "0") not in {"", "0"}:
            _say(f"{OFFLINE} forbids downloads, but {venv} is unfinished or of another version")
            _say(f"  hint: run the same command once without {OFFLINE}")
            return 2
        started = time.monotonic()
        _say(f"preparing {venv} (once for each version of pyproject.toml)")
        try:
            _make(venv)
            _install(venv, checkout, extra)
        except subprocess.CalledProcessError as error:
            _say(f"the command failed: {' '.join(map(str, error.cmd))}")
            _say("  hint: the cause is printed above. Fix it and run the same command again: it")
            _say("  resumes. If the package index lacks a pinned file, set")
            _say(f"  {UNPINNED}=1 to install any release that pyproject.toml allows, without")
            _say("  checksums. If `pip check` names a package that is not of this project, delete")
            _say("  .venv: it has packages of an earlier version")
            return 5
        for each in CONTAINS[extra]:
            _stamp_path(venv, each).write_text(required, encoding="utf-8")
        _say(f"prepared in {time.monotonic() - started:.0f} s")
    return 0


def _private(path: str, flags: int) -> int:
    """Open a file with mode 0600: another user who can open a lock file could hold its lock."""
    descriptor = os.open(path, flags, 0o600)
    if os.fstat(descriptor).st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)
    return descriptor


def _make(venv: Path) -> None:
    python = venv / "bin" / "python"
    if python.exists() and _works([python, "-c", _FIT]):
        return
    if venv.exists():
        _say("recreating the environment: it is unfinished, or for another Python")
        shutil.rmtree(venv)
    _run([sys.executable, "-m", "venv", str(venv)])


def _works(command: list[str | Path]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _install(venv: Path, checkout: Path, extra: str) -> None:
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    if os.environ.get(UNPINNED):
        _run([*pip, "install", "--editable", f"{checkout}[{extra}]"])
        return
    # First install the build tools, from their own lock file. Without them, pip would download
    # build tools whose checksums it can't check. The lock files list all dependencies, so pip
    # resolves none (--no-deps); `pip check` confirms that none is missing.
    for lock in (BUILD_LOCK, LOCKS[extra]):
        hashed = ["--require-hashes", "--no-deps", "--no-build-isolation"]
        _run([*pip, "install", *hashed, "--requirement", str(checkout / lock)])
    own = ["--no-deps", "--no-build-isolation", "--editable", str(checkout)]
    _run([*pip, "install", *own])
    _run([*pip, "check"])


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(command, stdout=sys.stderr, check=True)


def _stamp(venv: Path, extra: str) -> str:
    try:
        return _stamp_path(venv, extra).read_text(encoding="utf-8")
    except OSError:
        return ""


def _stamp_path(venv: Path, extra: str) -> Path:
    return venv / f"eos-{extra}.stamp"


def _say(text: str) -> None:
    print(f"eos: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OSError as problem:
        _say(f"{problem.filename} can't be used: {problem.strerror}")
        _say("  hint: run this as the user who owns the checkout, .venv and .eos (`ls -ld` shows")
        _say("  the owner), and check with `df` that their disk is not full")
        sys.exit(5)
