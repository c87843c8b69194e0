"""Read and move a checkpoint's files in a bucket of S3, for commands that have no JVM."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from eos.folder import client_of, folder_of
from eos.object_store import store_of

_PARALLEL = 16  # requests to the store at the same time
_TEXT_MAX = 500  # of a store's error
# The store knows the request, but not this login, or does not grant it this right.
_DENIED = re.compile(
    r"AWS Error (?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|"
    r"SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT)\b|HTTP status 40[13]\b"
)


class BucketFiles:
    """Files in buckets of S3, given by `s3a://` URIs. `conf` is the profile's `spark.conf`."""

    is_local = False

    def __init__(self, conf: Mapping[str, str]) -> None:
        self._conf = conf

    def read(self, path: str) -> str:
        with self._at(path) as (client, key), client.open_input_file(key) as file:
            return bytes(file.readall()).decode("utf-8", errors="replace")

    def lines(self, path: str) -> Iterator[bytes]:
        with self._at(path) as (client, key), client.open_input_stream(key) as file:
            yield from io.BufferedReader(file)

    def names(self, path: str) -> list[str]:
        from pyarrow import fs

        with self._at(path) as (client, key):
            below = fs.FileSelector(key, allow_not_found=True)
            found = [each.base_name for each in client.get_file_info(below)]
            bucket = key.partition("/")[0]
            # pyarrow lists a missing bucket as an empty one.
            if not found and client.get_file_info(bucket).type == fs.FileType.NotFound:
                raise OSError(f"the bucket {bucket} does not exist")
            return found

    def exists(self, path: str) -> bool:
        from pyarrow import fs

        with self._at(path) as (client, key):
            return bool(client.get_file_info(key).type != fs.FileType.NotFound)

    def rename(self, old: str, new: str) -> None:
        """Copy the folder inside the store, then delete it. If the process dies in between, the old
        folder is still complete, or the copy is. A folder counts as a checkpoint once it has a
        plan, so the plans are copied last."""
        from pyarrow import fs

        if self.exists(new):
            raise FileExistsError(f"the target of the rename already exists: {new}")
        with self._at(old) as (client, source), self._at(new) as (_, target):
            below = fs.FileSelector(source, recursive=True)  # raises if it does not exist
            found = client.get_file_info(below)
            keys = [each.path for each in found if each.type == fs.FileType.File]

            def copy(key: str) -> None:
                client.copy_file(key, f"{target}{key.removeprefix(source)}")

            plans = [key for key in keys if key.startswith(f"{source}/offsets/")]
            others = [key for key in keys if key not in plans]
            with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="eos-rename") as threads:
                for part in (others, plans):
                    list(threads.map(copy, part))  # raises the first error
        self.remove(old)

    def remove(self, path: str) -> None:
        folder = folder_of(path, self._conf)
        assert folder is not None, f"{path} is not in a bucket"
        with _as_os_errors():
            folder.remove_folder("")

    @contextmanager
    def _at(self, path: str) -> Iterator[tuple[Any, str]]:
        """Yield the store's client, and the path as pyarrow has it: bucket and key."""
        with _as_os_errors():
            yield client_of(store_of(path, self._conf)), path.partition("://")[2].rstrip("/")


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise PermissionError if the store denies access, which pyarrow reports as a plain OSError
    with a text."""
    try:
        yield
    except OSError as error:
        text = str(error)[:_TEXT_MAX]
        if _DENIED.search(text):
            raise PermissionError(text) from error
        raise
