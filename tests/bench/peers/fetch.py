"""Where do the peers come from? Jars and packages are fetched by name into the user's cache.

Nothing is fetched before a benchmark asks for it. What can't be fetched raises `LeftOutError`, and
the benchmark reports that peer as left out.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from eos.cache import cache_root
from eos.errors import EosError
from eos.local import jars
from eos.local.java import find_java
from eos.local.relock import settings

LOCK_FILE = Path(__file__).with_name("jars.lock")
PROGRAMS = Path(__file__).with_name("programs")
_INSTALL_S_MAX, _COMPILE_S_MAX = 900, 300


class LeftOutError(Exception):
    """A peer that can't run on this machine. The message is the reason."""


def java_words(main_class: str, jar_set: str, *options: str) -> list[str]:
    """Return the command of a Java peer: its jars are fetched and its program is compiled."""
    try:
        found = jars.ensure(jar_set, lock=LOCK_FILE)[jar_set]
    except EosError as error:
        raise LeftOutError(f"its jars could not be fetched: {error}") from error
    classes = _compiled(main_class, found)
    class_path = os.pathsep.join(map(str, [classes, *found]))
    return [str(find_java().binary), *options, "-cp", class_path, main_class]


def _compiled(main_class: str, class_path: list[Path]) -> Path:
    """Compile the program, unless the cache has the classes of these sources."""
    sources = [PROGRAMS / f"{main_class}.java", PROGRAMS / "Turns.java"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    java = find_java()
    folder = cache_root() / "peers" / f"{main_class}-{digest}-java{java.version}"
    compiler = java.home / "bin" / "javac"
    if not (folder / f"{main_class}.class").exists():
        if not compiler.exists():
            raise LeftOutError(f"its program can't be compiled: {java.home} has no javac")
        subprocess.run(
            [
                *(str(compiler), "-nowarn", "-d", str(folder)),
                *("-cp", os.pathsep.join(map(str, class_path))),
                *map(str, sources),
            ],
            check=True,
            timeout=_COMPILE_S_MAX,
        )
    return folder


def python_of(name: str) -> Path:
    """Return the Python of a virtual environment that has the peer's packages."""
    packages: list[str] = settings()["peers"]["python"][name]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    folder = cache_root() / "peers" / f"{'-'.join(packages)}-python{version}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", *packages])
        complete.touch()
    return python


def _run(words: list[str]) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=_INSTALL_S_MAX, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LeftOutError(f"its packages could not be installed: {lines[-1]}")
