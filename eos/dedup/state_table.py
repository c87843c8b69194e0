"""How are the producers' states of a pipeline stored in its Delta table `producers`?

A producer's state has its newest epoch and the sequence numbers that dedup accepted. No other
module of dedup imports Delta. A version of the states is a Delta version plus a random token, which
the Delta version carries as an application transaction.

Only the ledger decides which version is valid: its records name the version for each position. A
version that no ledger record names is never used, even if it is the newest one. Each commit lists
exactly the files of the new version. So it also removes the files of an attempt that did not
commit, and restores the files that a rewind needs.

A commit is never merged with another process's commit. If another process committed first, this
commit fails and is retried on top of that version. So each version has exactly the files that its
author listed, and none from a replaced instance.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from eos.dedup.buckets import SCOPE_STATES, STATES, BucketFile, BucketKey
from eos.errors import PromiseBrokenError, UnavailableError
from eos.folder import Folder, as_folder
from eos.table_format import require_known_format

_COMMIT_TRIES = 10
# How long a version stays readable after another one replaced it.
KEPT_HOURS = 1
MAINTAINED_EVERY = 64  # versions of the Delta table
_SETTINGS = {
    "delta.logRetentionDuration": f"interval {KEPT_HOURS} hours",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
}
_APP = "eos.generation"
_LOG = "_delta_log"
_BY = list(BucketKey._fields)
_STATES = {each.name: each for each in (*STATES, *SCOPE_STATES)}  # the columns of both scopes
_SCHEMA = pa.schema(
    [("topic", pa.string()), *((name, pa.int32()) for name in _BY[1:]), *_STATES.values()],
)
Files = Mapping[BucketKey, BucketFile]


class StateVersion(NamedTuple):
    """Name of a version of the producers' states in the ledger: `DELTA_VERSION/RULES/TOKEN`.

    `rules` is a hash of the settings by which stamps (producer id, epoch, sequence) were read and
    validated. The states are valid only under the same settings."""

    delta_version: int
    rules: str
    token: int

    def __str__(self) -> str:
        return f"{self.delta_version}/{self.rules}/{self.token}"

    @classmethod
    def of(cls, text: str) -> StateVersion:
        version, rules, token = text.split("/")
        return cls(int(version), rules, int(token))


class ProducersTable:
    """Delta table with the producers' states of one pipeline. Not thread-safe."""

    def __init__(self, location: Folder | Path, pipeline: str) -> None:
        self.location = as_folder(location)
        self._pipeline = pipeline
        self._is_due = False  # whether maintenance is due

    def files(self, version: StateVersion) -> Files:
        """Return the state files of a version.

        Raise PromiseBrokenError if the version is gone, or if another attempt wrote it."""
        with self._wrapped_errors():
            try:
                table = self._table(version.delta_version)
            except TableNotFoundError as error:
                self._require_store(version, error)
                raise self._lost(version, "the table does not exist") from error
            except DeltaError as error:
                self._require_store(version, error)
                raise self._lost(version, str(error).strip()[:300]) from error
            if table.transaction_version(_APP) != version.token:
                raise self._lost(version, "another attempt wrote that version")
            self._require_known_format(table)
            return _files(table)

    def commit(self, files: Files, rules: str) -> StateVersion:
        """Commit a new version with exactly these state files, and return its name.

        The files must be in the table's folder already."""
        self.location.require_room()
        with self._wrapped_errors():
            for _ in range(_COMMIT_TRIES):
                table = self._opened()
                token = secrets.randbelow(2**62)
                try:
                    _write(table, _changes(_files(table), files), token)
                except CommitFailedError:
                    continue
                found = StateVersion(table.version() + 1, rules, token)
                self._is_due |= found.delta_version % MAINTAINED_EVERY == 0
                return found
        raise UnavailableError(
            "producers_conflict",
            f"{self._pipeline}: {_COMMIT_TRIES} commits to {self.location} failed, because other "
            "processes wrote to it at the same time",
            hint="does another copy of this pipeline run? Stop it, then start again",
        )

    def maintain(self) -> None:
        """Clean up the table every `MAINTAINED_EVERY` versions. Call it after a ledger commit.

        Write a checkpoint of the Delta log. Delete files that were removed more than `KEPT_HOURS`
        ago, and files that no version ever named."""
        if not self._is_due:
            return
        self._is_due = False
        with self._wrapped_errors():
            older = self._older()
            if older is not None:
                older.create_checkpoint()
                older.cleanup_metadata()  # removes only log entries older than this version
            table = self._table()
            table.create_checkpoint()
            table.vacuum(dry_run=False, full=True)

    def _older(self) -> DeltaTable | None:
        """Return the table as of `KEPT_HOURS` ago; None if no log entry is that old.

        Cleanup of that version keeps its own log entry. Delta expires entries by age alone, so from
        the newest version it would delete one that was current for days and was just replaced."""
        before = time.time() - KEPT_HOURS * 3600
        entries = self.location.files(_LOG).items()
        old = (name.removesuffix(".json") for name, changed in entries if changed <= before)
        version = max((int(stem) for stem in old if stem.isdigit()), default=None)
        return None if version is None else self._table(version)

    def _table(self, version: int | None = None) -> DeltaTable:
        location = self.location
        return DeltaTable(location.uri, version=version, storage_options=location.options)

    def _require_store(self, version: StateVersion, error: DeltaError) -> None:
        """Raise the error unless the version is gone. A bucket may also be away or reject the
        login, and then nothing is lost."""
        name = f"{_LOG}/{version.delta_version:020}.json"
        if self.location.local is None and self.location.exists(name):
            raise error

    def _opened(self) -> DeltaTable:
        """Return the newest version. Create the table if it does not exist.

        On a disk only the holder of the pipeline's lock creates it. In a bucket a replaced instance
        may do so at the same time, and the first commit wins. If a replaced instance creates one,
        no ledger record refers to that table."""
        try:
            table = self._table()
        except TableNotFoundError:
            try:
                return self._created()
            except DeltaError as error:
                try:
                    table = self._table()  # another process created it first
                except TableNotFoundError:
                    raise error from None
        self._require_known_format(table)
        return table

    def _created(self) -> DeltaTable:
        self.location.create()
        return DeltaTable.create(
            self.location.uri,
            _SCHEMA,
            partition_by=_BY,
            name="producers",
            description="The last sequence numbers of each producer, by bucket. The ledger "
            "has the version of the last commit.",
            configuration=_SETTINGS,
            storage_options=self.location.options,
            commit_properties=CommitProperties(max_commit_retries=0),
        )

    def _require_known_format(self, table: DeltaTable) -> None:
        """Raise PromiseBrokenError if a newer release changed the table's format."""
        remedy = (
            f"move that folder away and run `eos recover {self._pipeline} --forget-producers`: "
            "duplicates of records sent earlier are not recognized then"
        )
        require_known_format(self.location, table.metadata().configuration, remedy=remedy)

    def _lost(self, version: StateVersion, reason: str) -> PromiseBrokenError:
        return PromiseBrokenError(
            "producers_lost",
            f"{self._pipeline}: the ledger refers to version {version.delta_version} of the "
            f"producers' states in {self.location}, which can't be read: {reason}",
            hint="the folder was deleted, or the pipeline was moved here or rewound further back "
            f"than the {KEPT_HOURS} hour for which states are kept. Restore the folder, or run "
            f"`eos recover {self._pipeline} --forget-producers`: duplicates of records sent "
            "earlier are not recognized then",
            pipeline=self._pipeline,
            path=str(self.location),
        )

    @contextmanager
    def _wrapped_errors(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = lines[0][:300]
            raise UnavailableError(
                "producers_unavailable",
                f"{self._pipeline}: the table of producers' states {self.location} can't be "
                f"read or written: {reason}",
                hint="is there free space, and may this user write there? Then start again",
                path=str(self.location),
            ) from error


def _files(table: DeltaTable) -> dict[BucketKey, BucketFile]:
    actions = pa.table(table.get_add_actions(flatten=True))
    if not actions.num_rows:
        return {}
    names = ["path", "num_records", "size_bytes", *(f"partition.{name}" for name in _BY)]
    columns = [actions.column(name).to_pylist() for name in names]
    return {
        BucketKey(str(topic), *map(int, numbers)): BucketFile(path, rows, size)
        for path, rows, size, topic, *numbers in zip(*columns, strict=True)
    }


def _changes(now: Files, target: Files) -> list[AddAction | RemoveAction]:
    at_ms = int(time.time() * 1000)
    removed = {key: file for key, file in now.items() if target.get(key) != file}
    new = {key: file for key, file in target.items() if now.get(key) != file}
    return [
        *(RemoveAction(f.path, True, at_ms, f.bytes, _values(key)) for key, f in removed.items()),
        *(
            AddAction(
                f.path, f.bytes, _values(key), at_ms, True, json.dumps({"numRecords": f.rows})
            )
            for key, f in new.items()
        ),
    ]


def _values(key: BucketKey) -> dict[str, str | None]:
    return {name: str(value) for name, value in key._asdict().items()}


def _write(table: DeltaTable, changes: list[AddAction | RemoveAction], token: int) -> None:
    table.create_write_transaction(
        changes,
        "append",
        table.schema(),
        _BY,
        commit_properties=CommitProperties(
            app_transactions=[Transaction(_APP, token)], max_commit_retries=0
        ),
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=False, cleanup_expired_logs=False
        ),
    )
