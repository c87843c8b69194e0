"""The `transactions` table: the only file that knows Delta.

Delta's log keeps, for each name of an application, the version that it wrote last; a commit carries
rows and that version together. So rows that are told twice are written once: whoever appends reads
the version from a snapshot, and its commit fails if another one with the same name came between
(the library compares names, not versions: it would accept a lower one). Commits of other pipelines
in between are no conflict, and are tried again by the library, so often and no more.

Errors of the library and of the file system leave as UnavailableError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from eos import private_files
from eos.audit.rows import PARTITION, SCHEMA, SCHEMA_VERSION
from eos.errors import UnavailableError
from eos.full_disk import require_room

# Of other pipelines' commits in between.
_COMMIT_TRIES = 50
# In two steps, so that neither a compaction nor the number of files grows with the table: small
# files become one of the first size, and many of those become one of the second.
FILE_BYTES, LARGE_FILE_BYTES = 1024 * 1024, 64 * 1024 * 1024
# A reader that began on an older snapshot has so long to finish it.
KEPT_HOURS = 1
_SETTINGS = {
    "delta.checkpointInterval": "100",
    # Both bound what a commit has to look through: entries of the log, and files that are gone.
    "delta.logRetentionDuration": "interval 10 minutes",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
    # A commit reads the statistics of every file: with those of all columns it takes three times
    # as long. These are what `look` leaves files out by.
    "delta.dataSkippingStatsColumns": "ledger_id,ledger_offset,ended_at",
    "eos.schema": str(SCHEMA_VERSION),
}
_LOG = "_delta_log"


class OvertakenError(Exception):
    """Somebody else committed under this name since the snapshot: look again."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of one pipeline's part of the table."""

    files: int
    version: int


class TransactionsTable:
    """One table for all pipelines of a state root. Not shared between threads."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self._table: DeltaTable | None = None

    def known(self, app: str) -> int:
        """What was committed last under this name, as of now; -1: nothing. Makes the table where
        there is none."""
        require_room(self.location)
        with self._told():
            table = self._opened()
            version = table.transaction_version(app)
            return -1 if version is None else int(version)

    def append(self, rows: pa.Table, app: str, version: int) -> None:
        """Upon the snapshot that `known` looked at. Raises OvertakenError."""
        assert self._table is not None, "known() comes first"
        done = CommitProperties(
            app_transactions=[Transaction(app, version)], max_commit_retries=_COMMIT_TRIES
        )
        require_room(self.location)
        with self._told():
            try:
                # "merge": columns that an older table lacks are added; those that a newer release
                # added stay, and are null in these rows.
                write_deltalake(
                    self._table, rows, mode="append", schema_mode="merge", commit_properties=done
                )
            except CommitFailedError as error:
                if "oncurrent transaction" in str(error):
                    raise OvertakenError from error
                raise

    def size(self, pipeline: str) -> Size | None:
        """None: there is no table."""
        with self._told():
            try:
                table = DeltaTable(self.location)
            except TableNotFoundError:
                return None
            files = table.file_uris(file_pruning_predicate=[(PARTITION, "=", pipeline)])
            return Size(len(files), table.version())

    def compact(self, pipeline: str, file_bytes: int = LARGE_FILE_BYTES) -> None:
        """Files of one pipeline that are smaller become one; nobody else's are touched."""
        require_room(self.location)
        with self._told():
            table = self._opened()
            table.optimize.compact(
                partition_filters=[(PARTITION, "=", pipeline)], target_size=file_bytes
            )

    def clean(self) -> int:
        """Deletes files that no snapshot of the last hour has, and entries of the log that a
        checkpoint holds. Returns how many data files went."""
        require_room(self.location)
        with self._told():
            table = self._opened()
            # All that lies there, not only what the log says is gone: a checkpoint forgets that
            # after the same hour, so that a third of all files would stay for good. What is
            # younger than an hour stays, and with it what somebody is about to commit.
            gone = table.vacuum(dry_run=False, full=True)
            table.create_checkpoint()
            table.cleanup_metadata()
            return len(gone)

    def query(self, sql: str) -> Sequence[Mapping[str, Any]]:
        """`sql` reads from `transactions`. No rows where there is no table."""
        return list(self.stream(sql))

    def stream(self, sql: str) -> Iterator[Mapping[str, Any]]:
        """The same, some thousand rows at a time, of one snapshot."""
        with self._told():
            try:
                table = DeltaTable(self.location)
            except TableNotFoundError:
                return
            found = QueryBuilder().register("transactions", table).execute(sql)
            for batch in pa.RecordBatchReader.from_stream(found):
                yield from batch.to_pylist()

    def _opened(self) -> DeltaTable:
        """As of now."""
        if self._table is not None and self._is_there(self._table):
            self._table.update_incremental()
        else:
            self._table = self._found_or_made()
        return self._table

    def _is_there(self, table: DeltaTable) -> bool:
        """A table that was deleted under our hands would else be believed to be as it was."""
        return (self.location / _LOG / f"{table.version():020}.json").exists()

    def _found_or_made(self) -> DeltaTable:
        try:
            return DeltaTable(self.location)
        except TableNotFoundError:
            return self._made()

    def _made(self) -> DeltaTable:
        """Several pipelines may come at once, and the library would let each of them commit a
        first version upon the other's. So the log is made aside; who comes first moves it here."""
        private_files.make(self.location)
        with TemporaryDirectory(dir=self.location.parent, prefix=".transactions-") as aside:
            DeltaTable.create(
                aside,
                SCHEMA,
                partition_by=[PARTITION],
                name="transactions",
                description="One row for each transaction and target partition, by pipeline.",
                configuration=_SETTINGS,
                raise_if_key_not_exists=False,
            )
            with suppress(OSError):  # refused where a log lies already
                (Path(aside) / _LOG).rename(self.location / _LOG)
        return DeltaTable(self.location)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            self._table = None  # whatever it was: look at it anew
            words = str(error).strip().splitlines() or [type(error).__name__]
            raise UnavailableError(
                f"the audit table {self.location} can't be read or written: {words[0][:300]}",
                hint="is there room, and may this user write there? A table that is deleted "
                "is made anew from the ledger",
                path=str(self.location),
            ) from error
