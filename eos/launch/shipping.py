"""The files that a run sends to executors, whose machines need only Python and Spark.

    SHIP/eos-KEY.zip                 `eos` with its native library, and the project's pipelines;
                                     imported directly
    SHIP/project-KEY.zip             for a driver in the cluster: all files of the project's
                                     pipelines, and the profile
    CACHE/shipped/packages-KEY.zip   the packages that tasks import; each executor unpacks it,
                                     because native libraries can't be loaded from a zip

KEY is a hash of the content. If Spark replaces a dead executor an hour later, the new executor
downloads the files again, and must get the same content. So a file is never overwritten, not even
by a later run with other code, and a file that a run still uses is not deleted.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution
from pathlib import Path

from eos import private_files
from eos.cache import cache_root
from eos.deadline import Deadline
from eos.errors import UsageError
from eos.local.file_locks import FileLock, acquire_shared, exclusive
from eos.native import library

CHECKOUT = Path(__file__).parents[2]
# The folder in each executor's working directory into which the packages are unpacked.
PACKAGES = "eos_packages"
# The packages that `eos.spark.tasks` imports, and pandas for users' functions. Their dependencies
# are included.
_ROOTS = (
    "cramjam",
    "google-crc32c",
    "kafka-python",
    "lz4",
    "numpy",
    "pandas",
    "pyarrow",
    "zstandard",
)
# The further packages that a driver imports. With those above they are the dependencies of
# spark-eos, except the machines' own pyspark, and packages that only commands and demos use.
OF_DRIVER = (
    "delta-spark",
    "deltalake",
    "jinja2",
    "markupsafe",
    "prometheus-client",
    "protobuf",
    "pydantic",
    "pyyaml",
    "rich",
)
_PROVIDED = frozenset({"pyspark", "py4j"})  # by Spark, on each machine
_EXCLUDED = ("pandas/tests/", "pyarrow/tests/", "pyarrow/include/")
VARIABLE = "EOS_SHIP"
_KEPT_MAX = 3  # files to keep of each kind, for several releases or checkouts
_BUILD_MS_MAX = 5 * 60_000
_PROJECT_BYTES_MAX = 100_000_000
_OWN_PYTHON = (
    "install `spark-eos` with pip into a separate environment; or give the executors a Python that "
    "has all packages: PYSPARK_PYTHON=./NAME/bin/python and --archives FILE#NAME"
)


def are_packages_sent() -> bool:
    """Return whether packages and jars are sent to the machines of a cluster. EOS_SHIP=project
    forbids it: these machines have them already, for example as containers of the same image."""
    value = os.environ.get(VARIABLE) or "all"
    if value not in {"all", "project"}:
        raise UsageError(
            "ship_unknown",
            f"{VARIABLE} is {value!r}; expected all or project",
            hint=f"{VARIABLE}=project sends only `eos` and the project's pipelines, for machines "
            "that have the packages and jars; unset it to send all of them",
        )
    return value == "all"


def eos_zip(folder: Path, project: Path) -> Path:
    """Return the path of a zip in `folder` with `eos` and the project's `pipelines/`.

    The zip is made if there is none with the same content."""
    files = {
        str(path.relative_to(base)): path
        for base, name in ((CHECKOUT, "eos"), (project, "pipelines"))
        for path in sorted((base / name).rglob("*.py"))
    }
    files |= _native()
    key = hashlib.sha256()
    for name, path in files.items():
        key.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return _provided(folder, "eos", key.hexdigest(), lambda: files)


def _native() -> dict[str, Path]:
    """Return the files of the native library, by their path in the zip.

    The library's file name contains a hash of its C sources and the platform. The sources are
    included, so that an executor can compute this name. If its platform differs from the driver's,
    it finds no library and does without.
    """
    inside = Path("eos") / "native"
    files = {str(inside / name): CHECKOUT / inside / name for name in library.SOURCES}
    found = library.find()
    if found.library is not None:
        path = Path(found.path)
        checksum = path.with_name(library.checksum_name(path.name))
        files |= {str(inside / "lib" / each.name): each for each in (path, checksum)}
    return files


def project_zip(folder: Path, project: Path, others: Mapping[str, Path]) -> Path:
    """Return the path of a zip in `folder` with the files of the project's `pipelines/`, and with
    `others`, by their names in the zip.

    A project without `pipelines/` is the folder of one pipeline, and all its files are included.
    Hidden files and compiled Python files never are."""
    base = project / "pipelines" if (project / "pipelines").is_dir() else project
    files = {**{str(path.relative_to(project)): path for path in _visible(base)}, **others}
    sizes = {name: path.stat().st_size for name, path in files.items()}
    if sum(sizes.values()) > _PROJECT_BYTES_MAX:
        largest = max(sizes, key=lambda name: sizes[name])
        raise UsageError(
            "project_too_large",
            f"the files in {base} have {sum(sizes.values()) / 1e6:.0f} MB, more than the "
            f"{_PROJECT_BYTES_MAX / 1e6:.0f} MB that can be sent to a driver in the cluster; the "
            f"largest is {largest} ({sizes[largest] / 1e6:.0f} MB)",
            hint="move data out of this folder, for example to HDFS or a bucket",
        )
    key = hashlib.sha256()
    for name, path in sorted(files.items()):
        key.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return _provided(folder, "project", key.hexdigest(), lambda: files)


def _visible(base: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(base):
        folders[:] = [each for each in folders if not each.startswith((".", "__pycache__"))]
        for name in names:
            path = Path(folder) / name
            if not name.startswith(".") and not name.endswith(".pyc") and path.is_file():
                yield path


def packages_zip(more: Sequence[str] = ()) -> Path:
    """Return the path of a zip with the Python packages that tasks import, about 100 MB, and with
    the packages `more`.

    The first run after an installation needs some seconds to make the zip."""
    found = _closure((*_ROOTS, *more))
    key = hashlib.sha256(f"{sys.version_info[:2]} {sysconfig.get_platform()}\n".encode())
    for name, distribution in sorted(found.items()):
        # RECORD, a package's list of files, has their checksums: no need to read the files.
        key.update(f"{name}\n{distribution.read_text('RECORD')}\n".encode())
    return _provided(
        cache_root() / "shipped", "packages", key.hexdigest(), lambda: dict(_files(found))
    )


def _provided(
    folder: Path, kind: str, key: str, contents: Callable[[], Mapping[str, Path]]
) -> Path:
    """Return the path of the zip with this key. Make it from `contents` if it is missing.

    This process keeps a shared lock on the zip until it ends, so that no other run deletes it."""
    target = folder / f"{kind}-{key[:16]}.zip"
    private_files.create_folder(folder)
    deadline = Deadline.after_ms(_BUILD_MS_MAX)
    with exclusive(folder / f"{kind}.lock", deadline):
        if target.exists():
            os.utime(target)  # mark it as used: the least recently used files are deleted
        else:
            unfinished = folder / f"{kind}.unfinished"
            _write(unfinished, contents())
            unfinished.replace(target)
        # Never close this lock: the zip is in use until this process, which runs spark-submit,
        # ends. Then the kernel releases the lock.
        acquire_shared(target, deadline)
        _remove_old(folder, kind)
    return target


def _write(target: Path, contents: Mapping[str, Path]) -> None:
    folders = {str(parent) for name in contents for parent in Path(name).parents}
    # Level 1 gives half the uncompressed size in a third of the default level's time.
    # A zip has no times before 1980, which the files of some images have.
    with zipfile.ZipFile(
        target, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
    ) as archive:
        # Before 3.13, Python imports a folder without `__init__.py` from a zip only if the zip has
        # an entry for the folder itself.
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
        if lock.try_exclusive():  # no run uses it
            path.unlink()
        lock.close()


def _closure(roots: Sequence[str]) -> dict[str, Distribution]:
    found: dict[str, Distribution] = {}
    required = list(roots)
    while required:
        name = required.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in roots:
                raise UsageError(
                    "package_missing",
                    f"the package {name} is not installed, so it can't be shipped to the executors",
                    hint=_OWN_PYTHON,
                ) from None
            continue  # the requirement may not apply to this Python or platform
        if name in found or name in _PROVIDED:
            continue
        if not distribution.read_text("RECORD"):
            raise UsageError(
                "package_files_unknown",
                f"the package {name} has no list of its files (RECORD), so it can't be shipped to "
                "the executors",
                hint=_OWN_PYTHON,
            )
        found[name] = distribution
        requirements = (each for each in distribution.requires or [] if "extra ==" not in each)
        names = (re.match(r"[A-Za-z0-9._-]+", each) for each in requirements)
        required += [match.group().lower() for match in names if match]
    return found


def _files(distributions: Mapping[str, Distribution]) -> Iterator[tuple[str, Path]]:
    for distribution in distributions.values():
        for file in distribution.files or []:
            name = file.as_posix()
            is_outside = name.startswith("..")  # not in site-packages, such as a command in bin/
            if is_outside or file.suffix == ".pyc" or name.startswith(_EXCLUDED):
                continue
            path = Path(str(distribution.locate_file(file)))
            if path.is_file():
                yield name, path
