"""The files of a checkpoint, wherever it lies: on this machine's disks, or where Hadoop can read.

Spark resolves a checkpoint's location by the rules of its JVM: a path without a scheme belongs to
the file system that `fs.defaultFS` names, which may be HDFS. So in the driver such a path is read
from the local disks only if that is the local one too; `files_for` decides. Local files are read
without the JVM: that is faster than Py4J, and a command line tool needs no Spark for it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eos.errors import UsageError
from eos.location import local_path, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PIECE_BYTES = 1 << 20


class Files(Protocol):
    """What is done with a checkpoint's files. Whatever fails raises an OSError."""

    is_local: bool
    """On this machine's disks, where a rename is one step and refuses a name that is taken."""

    def read(self, path: str) -> str:
        """The whole file, as UTF-8 text."""

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of a file of any size, each with its end."""

    def names(self, path: str) -> list[str]:
        """What lies in a folder, without the checksums of Hadoop's; nothing if it is absent."""

    def exists(self, path: str) -> bool: ...

    def rename(self, old: str, new: str) -> None:
        """Never onto or into what is there. In an object store it is a copy, and takes time."""

    def remove(self, path: str) -> None:
        """A folder with all that is in it; nothing if it is absent."""


class LocalFiles:
    """For plain paths and `file:` URIs."""

    is_local = True

    def read(self, path: str) -> str:
        # As bytes: reading as text would turn "\r\n" into "\n".
        return _local(path).read_bytes().decode("utf-8", errors="replace")

    def lines(self, path: str) -> Iterator[bytes]:
        with _local(path).open("rb") as file:
            yield from file

    def names(self, path: str) -> list[str]:
        try:
            names = [each.name for each in _local(path).iterdir()]
        except FileNotFoundError:
            return []
        return [name for name in names if not (name.startswith(".") and name.endswith(".crc"))]

    def exists(self, path: str) -> bool:
        return _local(path).exists()

    def rename(self, old: str, new: str) -> None:
        if _local(new).exists():  # an empty folder would be replaced without a word
            raise FileExistsError(f"{new} is there already")
        _local(old).rename(_local(new))

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(_local(path))


class HadoopFiles:
    """For every place that Spark can use: S3, ABFS, GCS, HDFS, and local disks as well."""

    is_local = False

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        # PySpark has no public way to Hadoop's file system.
        self._jvm: Any = context._jvm  # noqa: SLF001
        self._conf: Any = context._jsc.hadoopConfiguration()  # noqa: SLF001

    def read(self, path: str) -> str:
        with _as_os_errors():
            files, target = self._open(path)
            stream = files.open(target)
            try:
                utf8 = self._jvm.java.nio.charset.StandardCharsets.UTF_8
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, utf8))
            finally:
                stream.close()

    def lines(self, path: str) -> Iterator[bytes]:
        with _as_os_errors():
            files, target = self._open(path)
            stream = files.open(target)
            try:
                rest = b""
                while piece := bytes(stream.readNBytes(_PIECE_BYTES)):
                    *whole, rest = (rest + piece).splitlines(keepends=True)
                    yield from whole
                if rest:
                    yield rest
            finally:
                stream.close()

    def names(self, path: str) -> list[str]:
        try:
            with _as_os_errors():
                files, target = self._open(path)
                return [str(status.getPath().getName()) for status in files.listStatus(target)]
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        with _as_os_errors():
            files, target = self._open(path)
            return bool(files.exists(target))

    def rename(self, old: str, new: str) -> None:
        with _as_os_errors():
            files, source = self._open(old)
            _, target = self._open(new)
            files.getFileStatus(source)  # says so if it is not there
            if files.exists(target):  # Hadoop would move into a folder that is there
                raise FileExistsError(f"{new} is there already")
            if not files.rename(source, target):
                raise OSError(f"{old} can't be renamed to {new}")

    def remove(self, path: str) -> None:
        with _as_os_errors():
            files, target = self._open(path)
            files.delete(target, True)  # with what is in it

    def _open(self, path: str) -> tuple[Any, Any]:
        target = self._jvm.org.apache.hadoop.fs.Path(path)
        return target.getFileSystem(self._conf), target


def files_for(location: str, spark: SparkSession | None = None) -> Files:
    """What reads this location as the driver's Spark does. Without Spark: local disks only."""
    scheme = scheme_of(location)
    if spark is not None:
        return LocalFiles() if (scheme or _default_scheme(spark)) == "file" else HadoopFiles(spark)
    if scheme in ("", "file"):
        return LocalFiles()
    raise UsageError(
        f"{location} is not on this machine's disks, and only a running Spark can read there",
        hint="copy the checkpoint to a local folder to look into it",
        location=location,
    )


def _default_scheme(spark: SparkSession) -> str:
    """Of the file system that a path without a scheme belongs to: Hadoop's default is local."""
    context: Any = spark.sparkContext
    return scheme_of(str(context._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")))  # noqa: SLF001


def _local(path: str) -> Path:
    found = local_path(path)
    if found is None:
        raise OSError(f"{path} is not on this machine's disks")
    return found


# What Hadoop's file systems throw, by the part of it that tells what to do.
_KINDS: dict[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "AccessControlException": PermissionError,
    "AccessDeniedException": PermissionError,
}


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Java's exceptions in Python's words. A JVM that died is none of them: it passes through."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import IllegalArgumentException

    try:
        yield
    except IllegalArgumentException as error:  # a path that can't be one, a host without an address
        raise OSError(str(error).splitlines()[0]) from error
    except Py4JJavaError as error:
        java = error.java_exception
        kind = _KINDS.get(str(java.getClass().getSimpleName()), OSError)
        raise kind(_short(str(java.toString()))) from error


def _short(words: str) -> str:
    """What S3A says repeats itself, and names classes with their packages."""
    return re.sub(r"\b(?:[a-z]\w*\.)+(?=[A-Z]\w*Exception\b)", "", words)[:500]
