"""Read and move a checkpoint's files, on local disks, in S3, or in a file system of Hadoop's.

Spark resolves a checkpoint's location by the rules of its JVM: a path without a scheme belongs to
the file system in `fs.defaultFS`, which may be HDFS. So the driver reads such a path from the local
disks only if the default is local (`files_for`). Local files are read without the JVM: that is
faster than Py4J, and commands such as `eos verify` need no Spark. Commands read a bucket of S3
without Spark, too (`bucket_files`); a run reads it through Hadoop.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eos.checkpoint.bucket_files import BucketFiles
from eos.errors import UsageError
from eos.location import local_path, scheme_of
from eos.object_store import is_in_bucket, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PIECE_BYTES = 1 << 20
_CONDITIONAL = "fs.option.create.conditional.overwrite"  # of Hadoop 3.4.2 and later
_TEXT_MAX = 4_000  # how much of a Java exception's text is read


class Files(Protocol):
    """The operations on a checkpoint's files. Every failure raises an OSError."""

    is_local: bool
    """Whether the files are on local disks. There a rename is atomic and rejects existing names."""

    def read(self, path: str) -> str:
        """Return the whole file, as UTF-8 text."""

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a file of any size, each with its line break."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, without Hadoop's checksum files. Return [] if the folder
        does not exist."""

    def exists(self, path: str) -> bool: ...

    def rename(self, old: str, new: str) -> None:
        """Rename a folder. Raise FileExistsError if the new name exists.

        An object store copies the content, which takes time.
        """

    def remove(self, path: str) -> None:
        """Remove a folder with its content, if it exists."""


class LocalFiles:
    """Files on local disks, given by plain paths or `file:` URIs."""

    is_local = True

    def read(self, path: str) -> str:
        # Read bytes: reading as text would change "\r\n" to "\n".
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
        if _local(new).exists():  # otherwise an empty folder would be replaced silently
            raise FileExistsError(f"the target of the rename already exists: {new}")
        _local(old).rename(_local(new))

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(_local(path))


class HadoopFiles:
    """Files in any file system that Spark can use, such as S3, ABFS, GCS, HDFS and local disks."""

    is_local = False

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        # PySpark has no public API for Hadoop's file system.
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
            files.getFileStatus(source)  # raises if it does not exist
            if files.exists(target):  # Hadoop would move it into an existing folder
                raise FileExistsError(f"the target of the rename already exists: {new}")
            if not files.rename(source, target):
                raise OSError(f"{old} can't be renamed to {new}")

    def remove(self, path: str) -> None:
        with _as_os_errors():
            files, target = self._open(path)
            files.delete(target, True)  # True: recursively

    def tree(self, path: str) -> list[str]:
        """Return the paths of all files below a folder, relative to it."""
        with _as_os_errors():
            files, target = self._open(path)
            root = f"{files.makeQualified(target).toString()}/"
            found, every = [], files.listFiles(target, True)  # True: recursively
            while every.hasNext():
                found.append(str(every.next().getPath().toString()).removeprefix(root))
            return found

    def copy(self, old: str, new: str) -> None:
        """Copy a file. Its content passes through the driver."""
        with _as_os_errors():
            files, source = self._open(old)
            target = self._jvm.org.apache.hadoop.fs.Path(new)
            copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
            if not copy(files, source, files, target, False, True, self._conf):
                raise OSError(f"{old} can't be copied to {new}")

    def create_new(self, path: str) -> None:
        """Create an empty object by a request that the store must reject if the name exists
        (If-None-Match). Raise FileExistsError if it rejects the request, and UnsupportedOperation
        if the store's client can't send one."""
        with _as_os_errors():
            files, target = self._open(path)
            if not files.hasPathCapability(target, _CONDITIONAL):
                raise UnsupportedOperation(f"the client of {path} has no conditional requests")
            files.createFile(target).must(_CONDITIONAL, "true").overwrite(True).build().close()

    def _open(self, path: str) -> tuple[Any, Any]:
        target = self._jvm.org.apache.hadoop.fs.Path(path)
        return target.getFileSystem(self._conf), target


def files_for(
    location: str, spark: SparkSession | None = None, *, conf: Mapping[str, str] | None = None
) -> Files:
    """Return the access to this location, resolved as the driver's Spark resolves it.

    Without Spark, raise UsageError unless it is on local disks, or in a bucket of S3 whose address
    and credentials are in `conf`, the profile's `spark.conf`."""
    scheme = scheme_of(location)
    if spark is not None:
        return LocalFiles() if (scheme or _default_scheme(spark)) == "file" else HadoopFiles(spark)
    if scheme in ("", "file"):
        return LocalFiles()
    if conf is not None and is_in_bucket(location):
        store_of(location, conf)  # raises if only a JVM could use the credentials
        return BucketFiles(conf)
    raise UsageError(
        "checkpoint_not_local",
        f"{location} is neither on a local or mounted disk nor in a bucket of S3, and only a "
        "running Spark can read it",
        hint="copy the checkpoint to a local folder, and use that folder",
        location=location,
    )


def _default_scheme(spark: SparkSession) -> str:
    """Return the scheme of `fs.defaultFS`, which Spark uses for a path without one: "file" by
    default."""
    context: Any = spark.sparkContext
    return scheme_of(str(context._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")))  # noqa: SLF001


def _local(path: str) -> Path:
    found = local_path(path)
    if found is None:
        raise OSError(f"{path} is not on a local or mounted disk: its scheme is {scheme_of(path)}")
    return found


# The OSError for an exception of Hadoop's file systems, by its class name without the package. All
# others become a plain OSError.
_KINDS: dict[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "AccessControlException": PermissionError,
    "AccessDeniedException": PermissionError,
    "RemoteFileChangedException": FileExistsError,  # a request's condition was not met
}


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Replace Java's exceptions by OSErrors, for the calls inside this context. If the JVM has
    died, its error is not replaced."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import IllegalArgumentException

    try:
        yield
    except IllegalArgumentException as error:  # an invalid path, or a host without an address
        raise OSError(str(error).splitlines()[0]) from error
    except Py4JJavaError as error:
        java = error.java_exception
        kind = _KINDS.get(str(java.getClass().getSimpleName()), OSError)
        raise kind(_short(str(java.toString()))) from error


def _short(text: str) -> str:
    """Return the text without the package names of exception classes, which S3A repeats; at most
    500 characters. Only a part is read, because the store may choose a long text, and the
    expression takes quadratic time."""
    part = text[:_TEXT_MAX]
    return re.sub(r"\b(?:[a-z]\w*\.)+(?=[A-Z]\w*Exception\b)", "", part)[:500]
