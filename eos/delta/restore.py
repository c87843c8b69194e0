"""Can a Delta table be restored to the version that it had at an earlier ledger record, and how?

`eos recover --rewind-to OFFSET --restore-tables` plans all tables first. A plan changes nothing. It
raises if a restore would undo commits of others, or if the version can't be read any more.

The restoring commit also records a write of the pipeline (`txn`), with a number that no micro-batch
has, the *mark*. It has three effects:

- If the process dies before it moves the ledger, each startup stops, and names the command to
  repeat.
- A startup does not write the newest attempt into the table again, since the mark is newer.
- The RESTORE counts as a write of the pipeline. If others undo it by another RESTORE, the pipeline
  stops. Otherwise, the table would have the rows twice.

A table that has the right rows, but lacks the newest attempt, gets an empty commit with the mark.

Only tables of this machine are restored. Spark writes the tables with its own library, and only a
local disk protects a commit of one library from one of another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError

from eos.checkpoint.files import LocalFiles
from eos.delta import table_check
from eos.delta.history import Commit, MissingCommitError
from eos.delta.log import DeltaLog
from eos.errors import UnavailableError, UsageError
from eos.ledger.record import TableState
from eos.location import local_path
from eos.plan.delta_sink import Table

# The library restores whole files. It must understand each feature of the table. A deletion vector
# removes rows from a file without renaming the file.
_READER_MAX, _WRITER_MAX = 1, 4
_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "generatedColumns",
        "invariants",
        "timestampNtz",
    }
)
_VACUUM = ("VACUUM START", "VACUUM END")  # commits that note a VACUUM, and change nothing
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class TableRestore:
    """A planned restore of one Delta table.

    - `now`: the table's version when it was planned.
    - `target`: the version whose rows the table gets; None if it has the right rows already.
    - `state`: the table's state after the restore, for the ledger.
    """

    table: Table
    app: str
    now: int
    target: int | None
    state: TableState

    @property
    def is_done(self) -> bool:
        return self.state.version == self.now

    def line(self) -> str:
        """Return the restore as a line for the operator."""
        if self.target is None:
            return f"table  {self.table.name}  version {self.now} has the rows of that position"
        return f"table  {self.table.name}  version {self.now} -> as in version {self.target}"

    def as_json(self) -> dict[str, Any]:
        version = self.now if self.target is None else self.target
        return {"table": self.table.name, "path": self.table.path, "as_in_version": version}

    def apply(self) -> None:
        """Commit the restore. Raise UnavailableError if the table changed since the plan."""
        if self.is_done:
            return
        mark = Transaction(self.app, self.state.at)
        properties = CommitProperties(app_transactions=[mark], max_commit_retries=0)
        hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        try:
            # If another program committed since, the commit after `now` exists, and this one fails.
            found = _open(self.table, self.now)
            if self.target is not None:
                found.restore(
                    self.target,
                    commit_properties=properties,
                    post_commithook_properties=hooks,
                )
            else:  # nothing to restore, and the library raises an error for the newest version
                found.create_write_transaction(
                    [],
                    "append",
                    found.schema(),
                    found.metadata().partition_columns,
                    commit_properties=properties,
                    post_commithook_properties=hooks,
                )
        except (DeltaError, OSError) as error:
            raise UnavailableError(
                "table_restore_failed",
                f"the table {self.table.name} ({self.table.path}) can't be restored: "
                f"{_reason(error)}",
                hint="the ledger is unchanged; tables that were restored before this one stay so. "
                "Did another program write the table, or is its disk full? Run the command again",
                table=self.table.name,
            ) from error


@dataclass(frozen=True, slots=True)
class RestorePlanner:
    """Plans the restore of one table to the version in `then`, its state in the ledger.

    `app` is the pipeline's name in the table's log."""

    pipeline: str
    table: Table
    app: str
    then: TableState

    def plan(self, mark: int, newest: int) -> TableRestore:
        """Return the restore, and change nothing. Raise UsageError if it can't be done without a
        loss.

        `newest` is the ledger's newest attempt; -1 if it has none.
        """
        found = self._current()
        now, written = found.version(), found.transaction_version(self.app)
        at = -1 if written is None else int(written)
        if at > mark:
            raise table_check.ahead(self.pipeline, self.table, at, mark - 1)
        since = self._since(now)
        target = self._version if any(each.is_ours for each in since) else None
        if target is not None:
            self._require_restorable(found, since)
        else:
            self._refuse_commits([each for each in since if each.is_restore])
        if target is None and at >= newest:
            return TableRestore(self.table, self.app, now, None, TableState(self.then.id, at, now))
        marked = TableState(self.then.id, mark, now + 1)
        return TableRestore(self.table, self.app, now, target, marked)

    @property
    def _version(self) -> int:
        assert self.then.version is not None, "only tables with a known version are planned"
        return self.then.version

    @property
    def _name(self) -> str:
        return f"{self.pipeline}: the table {self.table.name} ({self.table.path})"

    @property
    def _statement(self) -> str:
        return f"RESTORE TABLE delta.`{self.table.path}` TO VERSION AS OF {self._version}"

    def _current(self) -> DeltaTable:
        """Return the table as it is. Raise if it is another one, or can't be opened here."""
        if local_path(self.table.path) is None:
            raise self._by_hand("is not on this machine, so this command can't restore it")
        try:
            found = _open(self.table)
        except (DeltaError, OSError) as error:
            raise self._by_hand(f"can't be opened: {_reason(error)}") from error
        if str(found.metadata().id) != self.then.id:
            now = str(found.metadata().id)
            raise table_check.replaced(self.pipeline, self.table, self.then, now)
        return found

    def _since(self, now: int) -> Sequence[Commit]:
        """Return the commits after the newest version that has exactly the rows to restore.

        That is the version itself, or a RESTORE to it, by an earlier call or by the operator.
        """
        if now < self._version:
            raise self._by_hand(
                f"is at version {now}, and has no version {self._version}: it is an older copy",
            )
        log = DeltaLog(LocalFiles(), str(local_path(self.table.path)), self.app)
        try:
            commits = [log.commit(each) for each in range(self._version + 1, now + 1)]
        except MissingCommitError as error:
            raise self._by_hand(
                f"can't be restored to version {self._version}: the commit of version "
                f"{error.version} is missing or damaged in its log, and may be of another writer",
            ) from error
        restores = [each for each in commits if each.is_restore and each.target == self._version]
        base = restores[-1].version if restores else self._version
        return [each for each in commits if each.version > base]

    def _require_restorable(self, found: DeltaTable, since: Sequence[Commit]) -> None:
        """Raise UsageError if a RESTORE would fail, or undo what the pipeline did not write."""
        self._refuse_commits(
            [
                each
                for each in since
                if each.wrote is None and (each.changes_rows or each.operation not in _VACUUM)
            ]
        )
        self._require_features(found)
        try:
            files = _files(_open(self.table, self._version))
        except (DeltaError, OSError) as error:
            raise self._gone(_reason(error)) from error
        absent = [each for each in files - _files(found) if not self._exists(each)]
        if absent:
            raise self._gone(f"{len(absent)} of its files are missing, such as {min(absent)}")

    def _exists(self, path: str) -> bool:
        """Return whether a data file exists, whose path is as in the log."""
        place, folder = local_path(unquote(path)), local_path(self.table.path)
        # A shallow clone, or a table that was converted from Parquet, has absolute paths.
        return place is not None and folder is not None and (folder / place).exists()

    def _refuse_commits(self, commits: Collection[Commit]) -> None:
        if not commits:
            return
        names = [f"{each.version} ({each.operation or 'unknown'})" for each in commits]
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        raise UsageError(
            "table_restore_foreign",
            f"{self._name} can't be restored to version {self._version}: this pipeline did not "
            f"write its later versions {', '.join(names[:_NAMED_MAX])}{more}, and a RESTORE would "
            "undo them",
            hint=f"nothing is changed. To undo them as well, run {self._statement}, and then this "
            "command again; or rewind without --restore-tables, and delete the repeated rows",
            table=self.table.name,
            version=self._version,
        )

    def _require_features(self, found: DeltaTable) -> None:
        protocol, settings = found.protocol(), found.metadata().configuration
        used = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        problems = sorted(used - _FEATURES)
        if not used and (
            protocol.min_reader_version > _READER_MAX or protocol.min_writer_version > _WRITER_MAX
        ):
            problems = [f"protocol ({protocol.min_reader_version}, {protocol.min_writer_version})"]
        if str(settings.get("delta.appendOnly", "")).lower() == "true":
            problems.append("delta.appendOnly")
        if problems:
            raise self._by_hand(
                f"uses {', '.join(problems)}, with which this command can't restore it",
            )

    def _gone(self, reason: str) -> UsageError:
        return UsageError(
            "table_version_gone",
            f"{self._name} can't be restored to version {self._version}: {reason}",
            hint="nothing is changed. A VACUUM or the log's retention deletes old versions. Rewind "
            "without --restore-tables, and delete the rows that the table gets a second time; or "
            "rewind to a later record",
            table=self.table.name,
            version=self._version,
        )

    def _by_hand(self, problem: str) -> UsageError:
        return UsageError(
            "table_restore_unsupported",
            f"{self._name} {problem}",
            hint="nothing is changed. Rewind without --restore-tables, then restore it with Spark: "
            f"{self._statement}; then run `eos recover {self.pipeline} --accept-table "
            f"{self.table.name} --yes`",
            table=self.table.name,
            version=self._version,
        )


def _open(table: Table, version: int | None = None) -> DeltaTable:
    return DeltaTable(str(local_path(table.path)), version=version)


def _files(table: DeltaTable) -> set[str]:
    """Return the paths of the version's data files, as in the log."""
    return set(pa.table(table.get_add_actions())["path"].to_pylist())


def _reason(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:300]
