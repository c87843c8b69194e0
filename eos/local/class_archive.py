"""Class-data archives (Java's AppCDS), which halve the startup time of a JVM.

With an archive, a JVM maps its classes into memory instead of loading them. The first run of a
program lists the classes that it loads. After a clean end, a background process makes the archive
from this list (`class_archive_maker.py`). Later runs use it.

    CACHE/archives/PROGRAM-KEY-CRC.jsa   ready
    CACHE/archives/PROGRAM-KEY.making/   being made, or failed; a failure is retried after a day

Without an archive, a JVM only starts slower. A damaged archive could crash a JVM, so its CRC is
checked before each use, and a damaged one is deleted. A JVM ignores an archive that does not fit,
for example after a change of heap layout. KEY is a hash over the Java and every jar with its time,
because the JVM compares these: after an update, a new archive is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eos.cache import cache_root
from eos.local import class_archive_maker
from eos.local.java import Java

_HAND_OVER_S_MAX = 30


@dataclass(frozen=True, slots=True)
class Archive:
    """Class-data archive of one program, for one Java and one class path."""

    program: str
    key: str

    def options(self, classes: Path | None = None) -> list[str]:
        """Return the Java options that use the archive.

        If there is no archive, return the option that makes the JVM write the names of its loaded
        classes to the file `classes`. Return none without `classes`, or if making the archive
        failed within the last day."""
        with contextlib.suppress(OSError):
            ready = self._ready()
            if ready:
                return [f"-XX:SharedArchiveFile={ready}", "-Xshare:auto", "-Xlog:cds*=off"]
            if classes and not self._is_tried():
                return [f"-XX:DumpLoadedClassList={classes}"]
        return []

    @property
    def dump_options(self) -> list[str]:
        """Return the Java options with which a JVM writes the archive, instead of running."""
        return [
            "-Xshare:dump",
            f"-XX:SharedClassListFile={self._work / 'classes'}",
            f"-XX:SharedArchiveFile={self._work / 'archive'}",
        ]

    def make_later(
        self, classes: Path, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """Start making the archive in the background if `classes` exists, and return at once.

        `command` is a JVM with `dump_options`. If several processes call this at the same time,
        one of them creates the work folder and makes the archive; the others do nothing.
        """
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if not classes.exists() or self._ready() or self._is_tried():
                return
            self._work.parent.mkdir(exist_ok=True)
            self._work.mkdir()
            shutil.copyfile(classes, self._work / "classes")
            prefix = self._work.with_suffix("")
            maker = [sys.executable, "-I", "-S", class_archive_maker.__file__]
            subprocess.run(
                [*maker, str(self._work), str(prefix), "--", *command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                check=False,
                timeout=_HAND_OVER_S_MAX,
            )

    @property
    def _work(self) -> Path:
        return _folder() / f"{self.program}-{self.key}.making"

    def _ready(self) -> Path | None:
        for path in _folder().glob(f"{self.program}-{self.key}-*.jsa"):
            if path.stem.rpartition("-")[2] == class_archive_maker.crc_of(path):
                os.utime(path)  # mark it as used: the least recently used archives are deleted
                return path
            path.unlink()
        return None

    def _is_tried(self) -> bool:
        try:
            if not class_archive_maker.is_old(self._work):
                return True
        except FileNotFoundError:
            return False
        shutil.rmtree(self._work)
        return False


def archive_of(program: str, java: Java, jars: Sequence[Path]) -> Archive:
    inputs = [java.home, *map(_file_state, (java.binary, java.modules, *jars))]
    return Archive(program, hashlib.sha256(repr(inputs).encode()).hexdigest()[:16])


def _file_state(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return str(path), -1, -1
    return str(path), found.st_size, found.st_mtime_ns


def _folder() -> Path:
    return cache_root() / "archives"  # it may not exist, and a cache may be read-only
