"""Find and load the native library, which is compiled from the C files of this package.

The first of these places that has an undamaged library is used:

1. the package, `eos/native/lib/`: wheels, and the zip that is shipped to executors;
2. the user's cache, into which the launcher builds it (`eos.launch.native_library`).

Without a library, callers use numpy or Spark. So `load` raises no error, and `status` has the
reason. The environment variable `EOS_NATIVE=off` disables the library.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import hashlib
import os
import pkgutil
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eos.cache import cache_root
from eos.errors import EosError

DISABLED = "EOS_NATIVE"  # the environment variable; the library is not used if it is "off"
# No `-march=native`, since a home folder may be shared by machines with different processors. On
# Linux no version of the C library is linked: the only function of it that is needed is memcpy.
FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-fvisibility=hidden")
LINUX_FLAGS = ("-nostdlib",)
SOURCES = ("kernels.h", "decode.c", "encode.c", "dedup.c", "json.c", "json_write.c")
_PACKAGE, _LIB = "eos.native", "lib"
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS = {
    "eos_decode": (_POINTER,),
    "eos_count": (_POINTER,),
    "eos_group": (_POINTER,),
    "eos_measure": (_POINTER,),
    "eos_fit": (_POINTER, _INT),
    "eos_write": (_POINTER,),
    "eos_partition": (_POINTER, _INT, _POINTER),
    "eos_murmur2": (_POINTER, _INT, _POINTER, _POINTER, _INT, _POINTER),
    "eos_stamps": (_POINTER,),
    "eos_number": (_POINTER,),
    "eos_crc32": (_POINTER, _POINTER, _POINTER),
    "eos_json": (_POINTER,),
    "eos_json_write": (_POINTER,),
}


@dataclass(frozen=True, slots=True)
class Status:
    """The native library of this process and where it was found, or why there is none."""

    library: Any  # ctypes.CDLL, or None
    origin: str  # "package", "cache" or ""
    path: str
    problem: str = ""


def load() -> Any:
    """Return the native library (a `ctypes.CDLL`), or None. It is loaded once per process."""
    return status().library


@cache
def status() -> Status:
    """Return the library and where it was found, or why there is none. Cached per process."""
    return find()


def is_disabled() -> bool:
    return os.environ.get(DISABLED, "").strip().lower() == "off"


def find() -> Status:
    """Load the library and return where it was found, or why there is none."""
    if is_disabled():
        return Status(None, "", "", f"{DISABLED}=off disables it")
    try:
        name = file_name()
    except OSError as error:
        return Status(None, "", "", f"its source is missing: {error}")
    problems = []
    for origin, find in (("package", _in_package), ("cache", _in_cache)):
        try:
            found = find(name)
            if found is None:
                continue
            path, content = found
            return Status(_loaded(path, content), origin, path)
        except (OSError, ValueError, EosError) as error:
            problems.append(f"{origin}: {error}")
    return Status(None, "", "", "; ".join(problems) or "it was not built on this machine")


def sources() -> dict[str, bytes]:
    """Return the C files by name. Raise OSError if one is missing."""
    found = {}
    for name in SOURCES:
        content = pkgutil.get_data(_PACKAGE, name)
        if content is None:
            raise FileNotFoundError(name)
        found[name] = content
    return found


def flags() -> tuple[str, ...]:
    """Return the compiler's flags on this platform."""
    return FLAGS + (LINUX_FLAGS if sys.platform == "linux" else ())


def file_name() -> str:
    """Return the library's file name, which depends on source code, flags and platform.

    So a library of another release is not found."""
    digest = hashlib.sha256(" ".join(flags()).encode())
    for content in sources().values():
        digest.update(content)
    return f"{digest.hexdigest()[:16]}-{sys.platform}-{platform.machine()}.so"


def cache_folder() -> Path:
    return cache_root() / "native"


def checksum_name(name: str) -> str:
    """Return the name of the file that has the library's SHA-256."""
    return f"{name}.sha256"


def verified(content: bytes, checksum: bytes, path: str) -> bytes:
    """Return the content. Raise ValueError if it is damaged: loading it could crash the process."""
    if hashlib.sha256(content).hexdigest() != checksum.decode("ascii", "replace").strip():
        raise ValueError(f"{path} does not have its checksum")
    return content


def _in_package(name: str) -> tuple[str, bytes] | None:
    path = str(Path(__file__).parent / _LIB / name)
    try:
        content = pkgutil.get_data(_PACKAGE, f"{_LIB}/{name}")
        checksum = pkgutil.get_data(_PACKAGE, f"{_LIB}/{checksum_name(name)}")
    except OSError:
        return None
    if content is None or checksum is None:
        return None
    return path, verified(content, checksum, path)


def _in_cache(name: str) -> tuple[str, bytes] | None:
    path = cache_folder() / name
    try:
        content, checksum = path.read_bytes(), path.with_name(checksum_name(name)).read_bytes()
    except FileNotFoundError:
        return None
    return str(path), verified(content, checksum, str(path))


def _loaded(path: str, content: bytes) -> Any:
    """Load a library from its file, or from these bytes if it is inside a zip."""
    library = ctypes.CDLL(path) if Path(path).is_file() else _from_bytes(content)
    try:
        return checked(library, path)
    except ValueError:
        # Unload the invalid library. Otherwise this process would get it again for the same path,
        # even after a new one is built there.
        _ctypes.dlclose(library._handle)  # noqa: SLF001 - ctypes has no other way
        raise


def checked(library: Any, path: str) -> Any:
    """Declare the types of the library's functions, and return the library.

    Raise ValueError if it lacks a function."""
    try:
        for name, arguments in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = ctypes.c_int64, arguments
    except AttributeError as error:
        raise ValueError(f"{path} lacks a function: {error}") from error
    return library


def _from_bytes(content: bytes) -> Any:
    """Load a library from its bytes: by a file in memory, or else by a temporary file."""
    create: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if create is not None:
        with contextlib.suppress(OSError):  # the kernel may forbid to execute such memory
            descriptor = create("eos-native")
            try:
                with os.fdopen(os.dup(descriptor), "wb") as file:
                    file.write(content)
                return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
            finally:
                os.close(descriptor)
    with tempfile.NamedTemporaryFile(prefix="eos-native-", suffix=".so") as file:
        file.write(content)
        file.flush()
        return ctypes.CDLL(file.name)
