"""`python -m eos.local.relock` regenerates `jars.lock` from the jars listed in pyproject.toml."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eos.local.jar_download import resolve
from eos.local.jars import LOCK_FILE, ORIGIN, Jar, write_lock

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def coordinates(pyproject: Path = PYPROJECT) -> dict[str, list[str]]:
    """Return the jars of each set in `[tool.eos.jars]`, as coordinates `group:artifact:version`."""
    jars: dict[str, list[str]] = settings(pyproject)["jars"]
    return jars


def settings(pyproject: Path = PYPROJECT) -> dict[str, Any]:
    """Return the table `[tool.eos]` of pyproject.toml."""
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml  # pytest installs it on Python 3.10, which has no tomllib
    document: dict[str, Any] = toml.loads(pyproject.read_text(encoding="utf-8"))
    found: dict[str, Any] = document["tool"]["eos"]
    return found


def relock(required: Mapping[str, Sequence[str]], lock: Path, origin: str = ORIGIN) -> int:
    """Download the jars of all sets, and write their sizes and checksums to the file `lock`.

    Return the exit code: 1 if a jar was not found, else 0."""
    every = sorted({name for names in required.values() for name in names})
    with tempfile.TemporaryDirectory() as work:
        files = resolve(every, Path(work))
        missing = [name for name in every if name not in files]
        if missing:
            print("not found: " + ", ".join(missing), file=sys.stderr)
            return 1
        jars = []
        for purpose, names in required.items():
            for name in names:
                content = files[name].read_bytes()
                sha256 = hashlib.sha256(content).hexdigest()
                jars.append(Jar(purpose, name, len(content), sha256))
    write_lock(jars, lock, origin)
    print(f"{lock}: {len(jars)} jars", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(relock(coordinates(), LOCK_FILE))
