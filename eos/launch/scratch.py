"""Private temporary folders of a run: for sockets, Java's temporary files and Spark's blocks.

A process that can connect to a socket of Spark's Python workers can run code as this user. A block
that Spark writes to disk contains records. Spark creates both with the umask's mode. So a run uses
folders that only this user can enter, whatever the umask. They are deleted at the run's end.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "eos-"
# A name as long as Spark's socket names, to compute the length of a socket's path. A path may have
# 107 bytes on Linux, and 103 on macOS.
_SOCKET = ".00000000-0000-0000-0000-000000000000.sock"
_PATH_BYTES_MAX = 103
_LOCAL_DIRS = "SPARK_LOCAL_DIRS"  # overrides the setting `spark.local.dir`
_TEMPORARY = "-Djava.io.tmpdir="
# Variables with Java options of the user. If one of them sets the temporary folder, the launcher
# must not set it on the command line, which would override the user's choice.
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


@dataclass(frozen=True, slots=True)
class Scratch:
    """Private folders of one run.

    `folder` is for sockets and temporary files. `local_dirs` has folders for Spark's blocks, comma-
    separated, inside those that the user chose. If it is empty, blocks are in `folder`, too."""

    folder: Path
    local_dirs: str = ""

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables for the JVM: `variables` and those with this run's
        folders.

        If the user's Java options set a temporary folder, that one is kept for Java's own files.
        """
        changed = dict(variables)
        if self.local_dirs:
            changed[_LOCAL_DIRS] = self.local_dirs
        if not any(_TEMPORARY in variables.get(name, "") for name in _JAVA_OPTIONS):
            options = [
                quoted(f"{_TEMPORARY}{self.folder}"),
                variables.get("SPARK_SUBMIT_OPTS", ""),
            ]
            changed["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, options))
        return changed


@contextlib.contextmanager
def scratch(local_dir: str | None = None) -> Iterator[Scratch]:
    """Create the private folders of one run, yield them, and delete them at the end.

    `local_dir` is the user's `spark.local.dir`. The variable SPARK_LOCAL_DIRS overrides it."""
    named = os.environ.get(_LOCAL_DIRS) or local_dir or ""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_folder(_base()))
        inside = [_inside(each, stack) for each in named.split(",") if each]
        yield Scratch(folder, ",".join(inside))


def quoted(option: str) -> str:
    """Return a Java option for SPARK_SUBMIT_OPTS, which spark-submit splits at spaces."""
    return f'"{option}"' if " " in option else option


def fits_sockets(folder: str | Path) -> bool:
    """Return whether Spark and PySpark 4.2 can use Unix sockets in this folder.

    PySpark turns a socket's path into lower case, so the folder's path must be lower case. And the
    operating system limits the length of a socket's path.
    """
    path = os.fsencode(f"{folder}/{_SOCKET}")
    return str(folder) == str(folder).lower() and len(path) <= _PATH_BYTES_MAX


def _base() -> str:
    """Return the temporary folder of the system, or /tmp if sockets can be used only there."""
    folder = tempfile.gettempdir()
    for each in (folder, "/tmp"):  # noqa: S108 - only as the parent of a private folder
        if fits_sockets(f"{each}/{PREFIX}{'x' * 8}") and os.access(each, os.W_OK | os.X_OK):
            return each
    return folder


def _inside(folder: str, stack: contextlib.ExitStack) -> str:
    """Create and return a private folder inside `folder`. `stack` deletes it at its end.

    If that fails, return `folder` itself: Spark then creates it, or reports the error."""
    try:
        return str(stack.enter_context(_folder(folder)))
    except OSError:
        return folder


@contextlib.contextmanager
def _folder(base: str) -> Iterator[Path]:
    """Yield a folder with mode 0700, whatever the umask, and delete it afterwards.

    Errors of the deletion are ignored, because processes of the run may still delete files."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=base, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
