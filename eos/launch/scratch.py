"""Where does a run keep its sockets, Java's temporary files, and blocks that Spark spills?

A process that can connect to a socket of Spark's Python workers can run code as this user. A
spilled block contains records. Spark creates both with the umask's mode. So the run uses folders
that only this user can enter, whatever the umask. They are deleted when the launcher ends.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "eos-"
# Spark's socket names have this length. mkdtemp's names have PREFIX and 8 characters. A socket path
# has at most 107 bytes on Linux, and 103 on macOS.
_SOCKET = ".00000000-0000-0000-0000-000000000000.sock"
_PATH_BYTES_MAX = 103
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # overrides the setting `spark.local.dir`
_TEMPORARY = "-Djava.io.tmpdir="
# Java reads the options in these variables before those of its command line, and the last one wins.
# So if the user sets the temporary folder in one of them, the launcher adds no such option.
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


@dataclass(frozen=True, slots=True)
class Scratch:
    """Private folders of one run.

    `folder` is for sockets and temporary files. `local_dirs` are folders for Spark's blocks, inside
    the folders that the user named; if it is empty, Spark uses `folder`."""

    folder: Path
    local_dirs: str = ""

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return `variables` with this run's folders, for the JVM.

        If the user's Java options already name a temporary folder, Java's own files go there.
        """
        changed = dict(variables)
        if self.local_dirs:
            changed[_LOCAL_DIRS] = self.local_dirs
        if not any(_TEMPORARY in variables.get(name, "") for name in _JAVA_OPTIONS):
            options = [f"{_TEMPORARY}{self.folder}", variables.get("SPARK_SUBMIT_OPTS", "")]
            changed["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, options))
        return changed


@contextlib.contextmanager
def scratch(local_dir: str | None = None) -> Iterator[Scratch]:
    """Create the folders of one run. `local_dir` is the user's `spark.local.dir`."""
    named = os.environ.get(_LOCAL_DIRS) or local_dir or ""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_folder(_base()))
        inside = [_inside(each, stack) for each in named.split(",") if each]
        yield Scratch(folder, ",".join(inside))


def fits_sockets(folder: str | Path) -> bool:
    """Return whether Spark and PySpark 4.2 can use sockets in this folder.

    PySpark looks up a socket by its path in lower case, and the kernel limits the path's length.
    """
    path = os.fsencode(f"{folder}/{_SOCKET}")
    return str(folder) == str(folder).lower() and len(path) <= _PATH_BYTES_MAX


def _base() -> str:
    """Return the user's temporary folder, or /tmp if socket paths fit only there."""
    folder = tempfile.gettempdir()
    for each in (folder, "/tmp"):  # noqa: S108 - only as the parent of a private folder
        if fits_sockets(f"{each}/{PREFIX}{'x' * 8}") and os.access(each, os.W_OK | os.X_OK):
            return each
    return folder


def _inside(folder: str, stack: contextlib.ExitStack) -> str:
    """Return a private folder inside the user's folder.

    If that fails, return the user's folder itself: Spark creates it or reports the error."""
    try:
        return str(stack.enter_context(_folder(folder)))
    except OSError:
        return folder


@contextlib.contextmanager
def _folder(base: str) -> Iterator[Path]:
    """Yield a folder with mode 0700, whatever the umask, and delete it afterwards.

    Errors of the deletion are ignored: processes of the run may delete files at the same time."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=base, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
