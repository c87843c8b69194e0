"""A folder of the state root on a disk or in a bucket, for the processes that have no JVM.

A write of a file is atomic in both: a reader sees the old file or the new one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from eos import private_files
from eos.full_disk import require_room
from eos.location import local_path
from eos.object_store import ObjectStore, is_in_bucket, store_of


class Folder(Protocol):
    """Operations on a folder. Names are relative to it, with `/`. Failures raise OSError."""

    @property
    def uri(self) -> str:
        """The folder's location for delta-rs."""

    @property
    def options(self) -> dict[str, str] | None:
        """The storage options for delta-rs; None on a disk."""

    @property
    def local(self) -> Path | None:
        """The folder's path on this machine; None in a bucket."""

    def child(self, name: str) -> Folder: ...

    def sibling(self, name: str) -> Folder: ...

    def create(self) -> None:
        """Create the folder, if its store has folders."""

    def require_room(self) -> None:
        """Raise UnavailableError if the folder's disk is full."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: bytes) -> None:
        """Replace a file, or create it. Atomic. On a disk its folder must exist."""

    def exists(self, name: str) -> bool: ...

    def files(self, name: str = "") -> Mapping[str, float]:
        """Return the names of the complete files directly in a subfolder and when each was last
        changed, in seconds since 1970. A missing folder has none."""

    def folders(self, name: str = "") -> Mapping[str, float]:
        """Return the names of the folders directly in a subfolder and when each was changed."""

    def open(self, name: str) -> BinaryIO:
        """Open a new file for writing. In a bucket it exists once it is closed."""

    def open_read(self, name: str) -> BinaryIO:
        """Open a file for reading at any place. In a bucket only the parts that are read are
        fetched."""

    def on_disk(self, name: str, aside: Path) -> Path:
        """Return the path of a file on this machine. In a bucket, copy it into `aside` first, once
        for all calls."""

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""

    def remove_folder(self, name: str) -> None:
        """Delete a subfolder and its content, if it exists."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder on a local or mounted disk."""

    path: Path
    options = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def uri(self) -> str:
        return str(self.path)

    @property
    def local(self) -> Path | None:
        return self.path

    def child(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name)

    def sibling(self, name: str) -> LocalFolder:
        return LocalFolder(self.path.with_name(name))

    def create(self) -> None:
        private_files.create_folder(self.path)

    def require_room(self) -> None:
        require_room(self.path)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        place = self.path / name
        unfinished = place.with_name(f".{place.name}")
        with open(unfinished, "wb", opener=private_files.opener) as file:
            file.write(content)
        os.replace(unfinished, place)  # noqa: PTH105 - as atomic as Path.replace

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def files(self, name: str = "") -> Mapping[str, float]:
        found = {}
        with suppress(FileNotFoundError):
            for each in (self.path / name).iterdir():
                with suppress(FileNotFoundError):  # another process deleted it first
                    if each.is_file() and not each.name.startswith("."):
                        found[each.name] = each.stat().st_mtime
        return found

    def folders(self, name: str = "") -> Mapping[str, float]:
        found = {}
        with suppress(FileNotFoundError):
            for each in (self.path / name).iterdir():
                with suppress(FileNotFoundError):  # another process deleted it first
                    if each.is_dir():
                        found[each.name] = each.stat().st_mtime
        return found

    def open(self, name: str) -> BinaryIO:
        return open(self.path / name, "wb", opener=private_files.opener)

    def open_read(self, name: str) -> BinaryIO:
        return (self.path / name).open("rb")

    def on_disk(self, name: str, aside: Path) -> Path:  # noqa: ARG002 - a bucket needs it
        return self.path / name

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def remove_folder(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class BucketFolder:
    """Objects of a bucket whose names begin with the folder's."""

    store: ObjectStore
    prefix: str  # without a slash at its end
    local = None

    def __str__(self) -> str:
        return f"s3a://{self.store.bucket}/{self.prefix}"

    @property
    def uri(self) -> str:
        return f"s3://{self.store.bucket}/{self.prefix}"

    @property
    def options(self) -> dict[str, str] | None:
        return self.store.delta_options()

    def child(self, name: str) -> BucketFolder:
        return replace(self, prefix=f"{self.prefix}/{name}")

    def sibling(self, name: str) -> BucketFolder:
        return replace(self, prefix=f"{self.prefix.rpartition('/')[0]}/{name}")

    def create(self) -> None:
        pass

    def require_room(self) -> None:
        pass

    def read(self, name: str) -> bytes:
        with self._client.open_input_file(self._path(name)) as file:
            return bytes(file.readall())

    def write(self, name: str, content: bytes) -> None:
        with self._client.open_output_stream(self._path(name)) as file:
            file.write(content)

    def exists(self, name: str) -> bool:
        from pyarrow import fs

        return bool(self._client.get_file_info(self._path(name)).type == fs.FileType.File)

    def files(self, name: str = "") -> Mapping[str, float]:
        from pyarrow import fs

        below = fs.FileSelector(self._path(name), allow_not_found=True)
        found = self._client.get_file_info(below)
        return {
            each.base_name: each.mtime.timestamp() if each.mtime else 0.0
            for each in found
            if each.type == fs.FileType.File
        }

    def folders(self, name: str = "") -> Mapping[str, float]:
        found: dict[str, float] = {}
        place = self._path(name)
        for path, changed in self._below(place):
            inner, slash, _ = path.removeprefix(f"{place}/").partition("/")
            if slash:
                found[inner] = max(found.get(inner, 0.0), changed)
        return found

    def open(self, name: str) -> BinaryIO:
        opened: BinaryIO = self._client.open_output_stream(self._path(name))
        return opened

    def open_read(self, name: str) -> BinaryIO:
        opened: BinaryIO = self._client.open_input_file(self._path(name))
        return opened

    def on_disk(self, name: str, aside: Path) -> Path:
        path = aside / name.replace("/", "-")
        if not path.exists():
            path.write_bytes(self.read(name))
        return path

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._client.delete_file(self._path(name))

    def remove_folder(self, name: str) -> None:
        place = self._path(name)
        try:
            self._client.delete_dir(place)
        except FileNotFoundError:
            return
        except OSError:
            # pyarrow also deletes an object for each folder. A server that keeps folders rejects
            # that while the folder has files, even if the same request deletes them.
            if any(self._below(place)):
                raise

    def _below(self, place: str) -> Iterator[tuple[str, float]]:
        """Yield the path of each file below a folder and when it was last changed."""
        from pyarrow import fs

        below = fs.FileSelector(place, recursive=True, allow_not_found=True)
        for each in self._client.get_file_info(below):
            if each.type == fs.FileType.File:
                yield each.path, each.mtime.timestamp() if each.mtime else 0.0

    def _path(self, name: str) -> str:
        return f"{self.store.bucket}/{self.prefix}/{name}".rstrip("/")

    @property
    def _client(self) -> Any:
        return client_of(self.store)


def client_of(store: ObjectStore) -> Any:
    """Return pyarrow's client of the store, one for all calls in this process."""
    return _client_of(store, os.getpid())


@lru_cache(maxsize=8)
def _client_of(store: ObjectStore, _process: int) -> Any:
    """Return this process's client. A client of a forked process's parent has no threads there."""
    return store.filesystem()


def folder_of(location: str, conf: Mapping[str, str]) -> Folder | None:
    """Return the access to a folder of the state root. Return None if its store is one that only
    Spark can write to. `conf` is the profile's `spark.conf`."""
    path = local_path(location)
    if path is not None:
        return LocalFolder(path)
    if not is_in_bucket(location):
        return None
    prefix = location.partition("://")[2].partition("/")[2].strip("/")
    return BucketFolder(store_of(location, conf), prefix)


def as_folder(place: Folder | Path) -> Folder:
    """Return the folder of a path; a folder is returned unchanged."""
    return LocalFolder(place) if isinstance(place, Path) else place
