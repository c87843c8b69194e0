"""What travels with a job to machines that have Python and Spark, and nothing of this project.

    SHIP/eos-KEY.zip                 `eos` and the project's pipelines; imported as it is
    CACHE/shipped/packages-KEY.zip   the packages that tasks import; each executor unpacks it, since
                                     the libraries in it can't be loaded from a zip

Both are named by their content. An executor that Spark starts an hour later, in the place of a
dead one, fetches them again: it must not get what another start has put there meanwhile. So a file
is never written twice, and one that a run still holds is not removed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import Distribution
from pathlib import Path

from eos import private_files
from eos.deadline import Deadline
from eos.errors import UsageError
from eos.local.cache import cache_root
from eos.local.file_locks import FileLock, acquire_shared, exclusive

CHECKOUT = Path(__file__).parents[2]
# The folder that the packages are unpacked to, in every executor's working directory.
PACKAGES = "eos_packages"
# What `eos.spark.tasks` imports, and pandas for users' own functions. What these require comes
# along.
_ROOTS = ("google-crc32c", "kafka-python", "lz4", "numpy", "pandas", "pyarrow", "zstandard")
_LEFT_OUT = ("pandas/tests/", "pyarrow/tests/", "pyarrow/include/")
_KEPT_MAX = 3  # of each kind: some releases, or some checkouts
_BUILD_MS_MAX = 5 * 60_000


def eos_zip(folder: Path, project: Path) -> Path:
    """`eos`, and the project's pipelines with it."""
    files = {
        str(path.relative_to(base)): path
        for base, name in ((CHECKOUT, "eos"), (project, "pipelines"))
        for path in sorted((base / name).rglob("*.py"))
    }
    key = hashlib.sha256()
    for name, path in files.items():
        key.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return _provided(folder, "eos", key.hexdigest(), lambda: files)


def packages_zip() -> Path:
    """The packages of this environment that tasks import. The first start after an installation
    takes some seconds for it; about 100 MB."""
    found = _closure()
    key = hashlib.sha256(f"{sys.version_info[:2]} {sysconfig.get_platform()}\n".encode())
    for name, distribution in sorted(found.items()):
        # It holds a checksum of every file.
        key.update(f"{name}\n{distribution.read_text('RECORD')}\n".encode())
    return _provided(
        cache_root() / "shipped", "packages", key.hexdigest(), lambda: dict(_files(found))
    )


def _provided(
    folder: Path, kind: str, key: str, contents: Callable[[], Mapping[str, Path]]
) -> Path:
    """The file of this name, made if it is missing, and kept while this process lives."""
    target = folder / f"{kind}-{key[:16]}.zip"
    private_files.make(folder)
    deadline = Deadline.after_ms(_BUILD_MS_MAX)
    with exclusive(folder / f"{kind}.lock", deadline):
        if target.exists():
            os.utime(target)  # the least recently used one goes first
        else:
            unfinished = folder / f"{kind}.unfinished"
            _write(unfinished, contents())
            unfinished.replace(target)
        # Never closed: the kernel drops it with this process, the parent of the Spark application.
        acquire_shared(target, deadline)
        _remove_old(folder, kind)
    return target


def _write(target: Path, contents: Mapping[str, Path]) -> None:
    folders = {str(parent) for name in contents for parent in Path(name).parents}
    # Level 1: half the size of none, and a third of the time of the default.
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        # Before 3.13 Python finds a folder without `__init__.py` in a zip by its entry only.
        for name in sorted(folders - {"."}):
            archive.writestr(f"{name}/", b"")
        for name, path in sorted(contents.items()):
            archive.write(path, name)


def _remove_old(folder: Path, kind: str) -> None:
    newest_first = sorted(
        folder.glob(f"{kind}-*.zip"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for path in newest_first[_KEPT_MAX:]:
        lock = FileLock(path)
        if lock.try_exclusive():  # no run holds it
            path.unlink()
        lock.close()


def _closure() -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    wanted = list(_ROOTS)
    while wanted:
        name = wanted.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in _ROOTS:
                raise _cannot_ship(name, "is not installed") from None
            continue  # its marker may exclude this Python or platform
        if name in found:
            continue
        if not distribution.read_text("RECORD"):
            raise _cannot_ship(name, "has no list of its files (RECORD)")
        found[name] = distribution
        requirements = (each for each in distribution.requires or [] if "extra ==" not in each)
        names = (re.match(r"[A-Za-z0-9._-]+", each) for each in requirements)
        wanted += [match.group().lower() for match in names if match]
    return found


def _files(distributions: Mapping[str, Distribution]) -> Iterator[tuple[str, Path]]:
    for distribution in distributions.values():
        for file in distribution.files or []:
            name = file.as_posix()
            is_outside = name.startswith("..")  # a command of bin/
            if is_outside or file.suffix == ".pyc" or name.startswith(_LEFT_OUT):
                continue
            path = Path(str(distribution.locate_file(file)))
            if path.is_file():
                yield name, path


def _cannot_ship(package: str, why: str) -> UsageError:
    return UsageError(
        f"the package {package} {why}, so it can't travel to the executors",
        hint="install `spark-eos` with pip into an environment of its own; or give executors a "
        "Python that has all packages: PYSPARK_PYTHON=./NAME/bin/python and --archives FILE#NAME",
    )
