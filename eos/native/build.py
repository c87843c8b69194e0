"""Compile the native library.

`python -m eos.native.build --into eos/native/lib` builds it for a wheel.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from eos import private_files
from eos.native import library

_COMPILE_S_MAX = 120
_COMPILERS = ("cc", "gcc", "clang")
NO_COMPILER = f"no C compiler on PATH ({', '.join(_COMPILERS)})"


class BuildError(Exception):
    """The library could not be built. The message has the reason."""


def compiler() -> list[str] | None:
    """Return the command of a C compiler on PATH, or of the Python package ziglang, or None.

    A command on PATH may still not work: on macOS, `cc` can be a stub without a compiler."""
    for name in _COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return [path]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


def build(
    folder: Path, command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Path:
    """Compile the library into the folder and return its path. Raise BuildError if that fails.

    `command` is a compiler, and `environment` has additional variables for it. The library is
    loaded once before it is moved into the folder, so an unusable library is never left there.
    """
    name = library.file_name()
    private_files.create_folder(folder)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as unfinished:
        built = Path(unfinished) / name
        _compile(command, built, environment or {})
        try:
            library.checked(ctypes.CDLL(str(built)), str(built))
        except (OSError, ValueError) as error:
            raise BuildError(f"the compiled library can't be loaded: {error}") from error
        checksum = built.with_name(library.checksum_name(name))
        checksum.write_text(hashlib.sha256(built.read_bytes()).hexdigest() + "\n", "ascii")
        for each in (built, checksum):
            each.replace(folder / each.name)
    return folder / name


def _compile(command: Sequence[str], target: Path, environment: Mapping[str, str]) -> None:
    for name, content in library.sources().items():
        target.with_name(name).write_bytes(content)
    sources = [str(target.with_name(name)) for name in library.SOURCES if name.endswith(".c")]
    arguments = [*command, *library.flags(), "-o", str(target), *sources]
    # zig writes a cache. Put it into the temporary folder, which is deleted afterwards.
    zig = str(target.parent / "zig")
    caches = {"ZIG_GLOBAL_CACHE_DIR": zig, "ZIG_LOCAL_CACHE_DIR": zig}
    try:
        done = subprocess.run(
            arguments,
            env={**os.environ, **caches, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_COMPILE_S_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} failed: {error}") from error
    if done.returncode:
        output = done.stderr.decode(errors="replace").strip().splitlines()
        raise BuildError(f"{command[0]} failed: {output[0] if output else done.returncode}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m eos.native.build", description=__doc__)
    parser.add_argument("--into", type=Path, default=library.cache_folder(), metavar="FOLDER")
    folder = parser.parse_args(arguments).into
    command = compiler()
    try:
        if command is None:
            raise BuildError(NO_COMPILER)
        sys.stdout.write(f"{build(folder, command)}\n")
    except (BuildError, OSError) as error:
        sys.stderr.write(f"eos: the native library was not built: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
