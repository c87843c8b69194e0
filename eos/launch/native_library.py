"""The compilation of the native library (C code for record batches), if no wheel contains it.

It is compiled once into the user's cache: by the machine's C compiler, else by the one in the
ziglang wheel, which is downloaded for this purpose only. Without the library, runs are slower but
work. So a failed attempt prints one line, and is not repeated for a day.
`python -m eos.launch.native_library` tries again at once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eos import log_lines, private_files
from eos.deadline import Deadline
from eos.errors import EosError
from eos.local.file_locks import exclusive
from eos.native import build, library
from eos.offline import is_offline

COMPILER_LOCK = Path(__file__).with_name("compiler.lock")
_LOCK_MS_MAX = 150_000  # another process may be downloading the compiler
_INSTALL_S_MAX = 120
_RETRY_S = 24 * 3600
_KEPT_MAX = 8


def ensure_native(*, is_forced: bool = False) -> library.Status:
    """Return the status of the native library: the loaded library, or the reason for its absence.

    A missing library is built first, but not within a day of a failed attempt, unless `is_forced`.
    Failures don't raise, since a run works without the library.
    """
    found = library.find()
    if found.library is not None or library.is_disabled():
        return found
    try:
        failed = _failure_file()
        if not is_forced and _is_recent(failed):
            return found
        with exclusive(library.cache_folder() / "build.lock", Deadline.after_ms(_LOCK_MS_MAX)):
            found = library.find()  # another process may have built it
            if found.library is None and (is_forced or not _is_recent(failed)):
                reason = _built()
                failed.unlink(missing_ok=True)
                if reason:
                    with open(failed, "w", encoding="utf-8", opener=private_files.opener) as file:
                        file.write(f"{reason}\n")
                found = library.find()
    except (OSError, EosError) as error:
        log_lines.write(f"the native library was not built: {error}")
    return found


def last_failure() -> str:
    """Return the reason why the last attempt to build the library failed; "" if there is none."""
    try:
        return _failure_file().read_text(encoding="utf-8").strip()
    except (OSError, EosError):
        return ""


def _failure_file() -> Path:
    return library.cache_folder() / f"{library.file_name()}.failed"


def _is_recent(failed: Path) -> bool:
    try:
        return 0 <= time.time() - failed.stat().st_mtime < _RETRY_S
    except FileNotFoundError:
        return False


def _built() -> str:
    """Build the library into the cache. Return "", or the reason of the failure."""
    reasons = []
    for compiler in (_of_machine, _of_wheel):
        try:
            with compiler() as (command, environment):
                build.build(library.cache_folder(), command, environment)
            _forget_old()
            return ""
        except build.BuildError as error:
            reasons.append(str(error))
    reason = "; ".join(reasons)
    log_lines.write(f"the native library was not built, so runs are slower: {reason}")
    return reason


def _forget_old() -> None:
    """Delete all but the newest libraries in the cache, which several checkouts share."""
    folder = library.cache_folder()
    built = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
    kept = {path.name for path in built[:_KEPT_MAX]}
    for path in folder.glob("*.so*"):
        if path.name.partition(".so")[0] + ".so" not in kept:
            path.unlink(missing_ok=True)


@contextmanager
def _of_machine() -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the command of the machine's C compiler, and environment variables for it (none)."""
    command = build.compiler()
    if command is None:
        raise build.BuildError(build.NO_COMPILER)
    yield command, {}


@contextmanager
def _of_wheel() -> Iterator[tuple[list[str], dict[str, str]]]:
    """Download the wheel of a C compiler, yield its command and environment variables for it, and
    delete it, since it is large."""
    if is_offline():
        raise build.BuildError(f"{build.NO_COMPILER}; `eos fetch` downloads one and builds it")
    log_lines.write("downloading a C compiler for the native library (once, about 100 MB)")
    with tempfile.TemporaryDirectory(prefix="compiler-", dir=library.cache_folder()) as name:
        try:
            done = subprocess.run(
                [*_pip(), "--target", name],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_INSTALL_S_MAX,
            )
        except subprocess.TimeoutExpired as error:
            raise build.BuildError(f"no compiler was downloaded: {error}") from error
        if done.returncode:
            output = done.stderr.decode(errors="replace").strip().splitlines()
            reason = output[-1] if output else f"pip ended with {done.returncode}"
            raise build.BuildError(f"no compiler was downloaded: {reason}")
        yield [sys.executable, "-m", "ziglang", "cc"], {"PYTHONPATH": name}


def _pip() -> list[str]:
    """Return the pip command for the compiler's wheel, with the checksums of compiler.lock."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    bounds = ["--retries", "1", "--timeout", "20"]
    hashed = ["--require-hashes", "--no-deps", "--only-binary=:all:", "-r", str(COMPILER_LOCK)]
    return [*pip, *bounds, *hashed]


def main() -> None:
    found = ensure_native(is_forced=True)
    if found.library is None:
        log_lines.write(f"no native library: {found.problem}")
    else:
        log_lines.write(f"native library ({found.origin}: {found.path})")


if __name__ == "__main__":
    main()
