"""How are the audit tables `transactions` and `producers` read and written as Delta tables?

Delta's log keeps the last version written under each application name, and one commit contains rows
and that version. A writer reads the version from a snapshot, and its commit fails if another commit
with the same name was made since. The library compares only names and would accept a lower version.
Commits of other pipelines do not conflict: the library retries, up to a limit.

No other module uses Delta for these tables. Errors of the library and of the file system are raised
as UnavailableError.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from eos.audit.producer_rows import PRODUCERS_SCHEMA, PRODUCERS_SCHEMA_VERSION
from eos.audit.rows import PARTITION, SCHEMA, SCHEMA_VERSION
from eos.errors import PromiseBrokenError, UnavailableError
from eos.folder import Folder, as_folder
from eos.table_format import require_known_format

# Retries of a commit if other pipelines commit to the table at the same time.
_COMMIT_TRIES = 50
# Files are compacted in two levels, so that neither a compaction nor the number of files grows with
# the table. Small files become one of the first size, and many of those one of the second size.
FILE_BYTES, LARGE_FILE_BYTES = 1024 * 1024, 64 * 1024 * 1024
# Removed files are kept this long, for readers of an older snapshot.
KEPT_HOURS = 1
_SETTINGS = {
    "delta.checkpointInterval": "100",
    # A commit reads the log's entries and its list of deleted files. Keep both short.
    "delta.logRetentionDuration": "interval 10 minutes",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
    # A commit reads the statistics of every file. With those of all columns it takes three times
    # as long. `audit.reader` uses these columns to skip files.
    "delta.dataSkippingStatsColumns": "ledger_id,ledger_offset,ended_at",
    "eos.schema": str(SCHEMA_VERSION),
}
# Each commit replaces a pipeline's rows, so their files are kept for a shorter time.
_PRODUCERS_SETTINGS = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 10 minutes",
    "delta.deletedFileRetentionDuration": "interval 10 minutes",
    "delta.dataSkippingStatsColumns": "ledger_offset",
    "eos.schema": str(PRODUCERS_SCHEMA_VERSION),
}
_LOG = "_delta_log"
_SNAPSHOT_S = 60.0  # much less than the log's retention


class OvertakenError(Exception):
    """Another process committed under this name since the snapshot. Call `known` and retry."""


class AuditTable:
    """One table of all pipelines of a state root. Not thread-safe."""

    name: str
    description: str
    schema: pa.Schema
    settings: ClassVar[Mapping[str, str]]

    def __init__(self, location: Folder | Path) -> None:
        self.location = as_folder(location)
        self._table: DeltaTable | None = None
        self._opened_s = 0.0  # when the snapshot was the newest one

    def known(self, app: str) -> int:
        """Return the last version committed under this name; -1 if there is none.

        Creates the table if it does not exist.
        """
        self.location.require_room()
        with self._delta_errors():
            table = self._open()
            version = table.transaction_version(app)
            return -1 if version is None else int(version)

    def _write(self, rows: pa.Table, app: str, version: int, **how: Any) -> None:
        assert self._table is not None, "known() comes first"
        done = CommitProperties(
            app_transactions=[Transaction(app, version)], max_commit_retries=_COMMIT_TRIES
        )
        self.location.require_room()
        with self._delta_errors():
            try:
                # "merge" adds columns that an older table lacks. Columns of a newer release are
                # kept, and are null in these rows.
                write_deltalake(
                    self._table, rows, schema_mode="merge", commit_properties=done, **how
                )
            except CommitFailedError as error:
                if "oncurrent transaction" in str(error):
                    raise OvertakenError from error
                raise

    def file_count(self, pipeline: str) -> int | None:
        """Return the number of files with rows of a pipeline; None if there is no table."""
        with self._delta_errors():
            try:
                table = self._existing()
            except TableNotFoundError:
                return None
            return len(table.file_uris(file_pruning_predicate=[(PARTITION, "=", pipeline)]))

    def compact(self, pipeline: str, file_bytes: int = LARGE_FILE_BYTES) -> None:
        """Merge files of one pipeline that are smaller than `file_bytes` into larger ones."""
        self.location.require_room()
        with self._delta_errors():
            table = self._open()
            table.optimize.compact(
                partition_filters=[(PARTITION, "=", pipeline)], target_size=file_bytes
            )

    def clean(self) -> int:
        """Delete data files that no retained snapshot uses, and old entries of the log.

        Return the number of deleted data files.
        """
        self.location.require_room()
        with self._delta_errors():
            table = self._open()
            # Check all files in the folder, not only those that the log lists as deleted: a
            # checkpoint drops these entries after the same time, so a third of all files would
            # never be deleted. Files younger than `deletedFileRetentionDuration` are kept, also
            # those of a commit in progress.
            removed = table.vacuum(dry_run=False, full=True)
            table.create_checkpoint()
            table.cleanup_metadata()
            return len(removed)

    def query(self, sql: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a query of this table; no rows if it does not exist."""
        return list(self.stream(sql))

    def stream(self, sql: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of a query, some thousand at a time, from one snapshot."""
        with self._delta_errors():
            try:
                table = self._existing()
            except TableNotFoundError:
                return
            yield from self._rows_of(table, sql)

    def _rows_of(self, table: DeltaTable, sql: str) -> Iterator[Mapping[str, Any]]:
        found = QueryBuilder().register(self.name, table).execute(sql)
        for batch in pa.RecordBatchReader.from_stream(found):
            yield from batch.to_pylist()

    def _open(self) -> DeltaTable:
        """Return the table at its newest version.

        The library lists the log to find newer versions, and does not notice a deleted table. Both
        show in the log's files. The next version's file exists for ten minutes at least, so an
        older snapshot is updated in any case.
        """
        now = time.monotonic()
        if self._table is None or not self._has(self._table.version()):
            self._table = self._open_or_create()
        elif self._has(self._table.version() + 1) or now - self._opened_s > _SNAPSHOT_S:
            self._table.update_incremental()
            self._require_known_format(self._table)
        self._opened_s = now
        return self._table

    def _has(self, version: int) -> bool:
        return self.location.exists(f"{_LOG}/{version:020}.json")

    def _open_or_create(self) -> DeltaTable:
        try:
            return self._existing()
        except TableNotFoundError:
            return self._create()

    def _existing(self) -> DeltaTable:
        table = DeltaTable(self.location.uri, storage_options=self.location.options)
        self._require_known_format(table)
        return table

    def _require_known_format(self, table: DeltaTable) -> None:
        """Raise PromiseBrokenError if a newer release changed the table's format."""
        remedy = (
            "move that folder away: the next run creates the table again from the ledger. `audit: "
            "{transactions: false}` in the profile runs without it"
        )
        try:
            require_known_format(self.location, table.metadata().configuration, remedy=remedy)
        except PromiseBrokenError:
            self._table = None  # open and check it again
            raise

    def _create(self) -> DeltaTable:
        """Create the table, or open it if another process creates it first.

        Several pipelines may create it at once. The first commit wins, since a commit without
        retries fails if its version exists. With retries each of them would commit a version.
        """
        self.location.create()
        try:
            DeltaTable.create(
                self.location.uri,
                self.schema,
                partition_by=[PARTITION],
                name=self.name,
                description=self.description,
                configuration=dict(self.settings),
                raise_if_key_not_exists=False,
                storage_options=self.location.options,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except DeltaError as error:
            try:
                return self._existing()
            except TableNotFoundError:
                raise error from None
        return self._existing()

    @contextmanager
    def _delta_errors(self) -> Iterator[None]:
        """Raise the errors of Delta and of the file system as UnavailableError."""
        try:
            yield
        except (DeltaError, OSError) as error:
            self._table = None  # open it again after any error
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
            raise UnavailableError(
                "audit_table_unavailable",
                f"the audit table {self.location} can't be read or written: {reason}",
                hint="is the disk full, is the bucket away, or may this user not write there? A "
                "deleted table is recreated from the ledger",
                path=str(self.location),
            ) from error


class TransactionsTable(AuditTable):
    """Rows of all transactions. They are appended, and never change."""

    name = "transactions"
    description = "One row for each transaction and target partition, by pipeline."
    schema = SCHEMA
    settings = _SETTINGS

    def append(self, rows: pa.Table, app: str, version: int) -> None:
        """Append rows and record `version` under the name `app`, in one Delta commit.

        Raise OvertakenError if another process committed under this name since `known` was called.
        """
        self._write(rows, app, version, mode="append")


class ProducersTable(AuditTable):
    """Producer states. Each commit replaces the rows of one pipeline."""

    name = "producers"
    description = "One row for each target partition and producer id, by pipeline."
    schema = PRODUCERS_SCHEMA
    settings = _PRODUCERS_SETTINGS

    def rows(self, pipeline: str) -> Sequence[Mapping[str, Any]]:
        """Return a pipeline's rows from the snapshot that `known` read."""
        assert self._table is not None, "known() comes first"
        with self._delta_errors():
            sql = f"SELECT * FROM producers WHERE pipeline = '{pipeline}'"  # noqa: S608 - plain
            return list(self._rows_of(self._table, sql))

    def replace(self, rows: pa.Table, pipeline: str, app: str, version: int) -> None:
        """Replace a pipeline's rows and record `version` under the name `app`, in one Delta commit.

        Raise OvertakenError if another process committed under this name since `known` was called.
        """
        of_pipeline = f"{PARTITION} = '{pipeline}'"
        self._write(rows, app, version, mode="overwrite", predicate=of_pipeline)
