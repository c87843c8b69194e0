"""Read a Delta table without Spark: its log, its newest version, and its data files.

A table is on a disk of this machine, or in a bucket of S3. Only Spark can read other stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote

from eos.checkpoint.files import Files, files_for
from eos.delta.log import DeltaLog
from eos.errors import UsageError
from eos.folder import Folder, folder_of
from eos.location import local_path
from eos.plan.delta_sink import Table

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True, slots=True)
class TableStore:
    """A table's folder: `files` for its log, `folder` for its data files and for delta-rs."""

    table: Table
    files: Files
    folder: Folder

    @classmethod
    def of(cls, table: Table, conf: Mapping[str, str]) -> TableStore | None:
        """Return None if only Spark can read the table's store, or only a JVM can use the
        credentials for its bucket. `conf` is the profile's `spark.conf`."""
        try:
            folder = folder_of(table.path, conf)
        except UsageError:
            return None
        return None if folder is None else cls(table, files_for(table.path, conf=conf), folder)

    def log(self, app: str) -> DeltaLog:
        return DeltaLog(self.files, self.table.path, app)

    def has_log(self) -> bool:
        return self.files.exists(f"{self.table.path}/_delta_log")

    def newest(self) -> DeltaTable:
        """Return the newest version, as delta-rs reads it."""
        from deltalake import DeltaTable

        return DeltaTable(self.folder.uri, storage_options=self.folder.options)

    def open(self, path: str) -> BinaryIO | None:
        """Open a data file, whose path is as in the log. Return None if it is not below the table's
        folder and not on a disk of this machine."""
        name = unquote(path)
        place = local_path(name)
        if place is None:
            return None
        if place.is_absolute():  # the table is a shallow clone, or was converted from Parquet
            return None if self.folder.local is None else place.open("rb")
        return self.folder.open_read(name)
