"""Does a Delta table still have all rows that the pipeline wrote, according to the ledger?

The ledger has each table's id, version and last write. Startup, each write, the prediction of a
startup and `eos verify` use these checks and errors.
"""

from __future__ import annotations

from eos.delta.history import Commit, MissingCommitError, RemovedWrites
from eos.delta.log import DeltaLog
from eos.errors import FencedError, PromiseBrokenError
from eos.ledger.record import TableState
from eos.plan.delta_sink import Table


def require_complete(
    pipeline: str, table: Table, log: DeltaLog, known: TableState, now: int
) -> Commit | TableState:
    """Raise PromiseBrokenError if the table's version `now` lacks rows that the pipeline wrote.

    Return the pipeline's last write: its commit, or `known` if it wrote nothing since.

    Reads the table's commits since the version in the ledger. Only a version that passed this check
    is written into the ledger. So a lost row is reported by every check until an operator acts.
    """
    if known.version is not None and now < known.version:
        raise _older_error(pipeline, table, known.version, now)
    history = log.history()
    try:
        base = history.kept_version(known.at, now) if known.version is None else known.version
        lost = history.lost(base, now)
    except MissingCommitError as missing:
        raise _missing_error(pipeline, table, missing.version, known, now) from missing
    if lost is not None and lost.is_rewind:
        raise _unfinished_error(pipeline, table, lost.restore)
    if lost is not None:
        raise _restored_error(pipeline, table, lost)
    return history.newest_write(base, now) or known


def _restored_error(pipeline: str, table: Table, lost: RemovedWrites) -> PromiseBrokenError:
    name = f"{pipeline}: the table {table.name} ({table.path})"
    accept = f"run `eos recover {pipeline} --accept-table {table.name}` to resume with it as it is"
    target = "an older version" if lost.target is None else f"version {lost.target}"
    return PromiseBrokenError(
        "table_behind",
        f"{name} was restored to {target} by the RESTORE in its version {lost.restore}: rows that "
        "the pipeline wrote are missing",
        hint=f"no RESTORE brings all of them back, since the pipeline wrote to it later: {accept}"
        if lost.complete is None
        else f"to bring them back, run RESTORE TABLE delta.`{table.path}` TO VERSION AS OF "
        f"{lost.complete}; or {accept}",
        pipeline=pipeline,
        table=table.name,
        version=lost.restore,
    )


def _unfinished_error(pipeline: str, table: Table, restore: int) -> PromiseBrokenError:
    """Return the error for a RESTORE of `eos recover` that no recovery record followed."""
    return PromiseBrokenError(
        "table_restore_unfinished",
        f"{pipeline}: `eos recover --rewind-to --restore-tables` restored the table {table.name} "
        f"({table.path}) in its version {restore}, and ended before it moved the ledger back",
        hint=f"run `eos recover {pipeline} --rewind-to OFFSET --restore-tables --yes` again, with "
        "the same offset: it skips the tables that are restored already",
        pipeline=pipeline,
        table=table.name,
        version=restore,
    )


def _older_error(pipeline: str, table: Table, base: int, now: int) -> PromiseBrokenError:
    name = f"{pipeline}: the table {table.name} ({table.path})"
    accept = f"run `eos recover {pipeline} --accept-table {table.name}` to resume with it as it is"
    return PromiseBrokenError(
        "table_behind",
        f"{name} is at Delta's version {now}, but it was at {base} before",
        hint=f"was it restored from an older copy? Restore a newer one, or {accept}",
        pipeline=pipeline,
        table=table.name,
        version=now,
    )


def _missing_error(
    pipeline: str, table: Table, version: int, known: TableState, now: int
) -> PromiseBrokenError:
    name = f"{pipeline}: the table {table.name} ({table.path})"
    accept = f"run `eos recover {pipeline} --accept-table {table.name}` to resume with it as it is"
    base = f"from version {known.version}" if known.version is not None else "back"
    span = f"{base} to {now}" if known.version is not None else f"{base} from version {now}"
    return PromiseBrokenError(
        "table_history",
        f"{name}: its history can't be read {span}, since the commit of version {version} is "
        "missing or damaged in its log: a RESTORE may have removed rows",
        hint="did the log's retention (delta.logRetentionDuration) delete it? Compare the table "
        f"with the topics; if it lacks nothing, {accept}",
        pipeline=pipeline,
        table=table.name,
        version=version,
    )


def table_behind(pipeline: str, table: Table, version: int, known: int) -> PromiseBrokenError:
    """Return the error for a table whose last write is older than the one in the ledger."""
    name = f"{pipeline}: the table {table.name} ({table.path})"
    accept = f"run `eos recover {pipeline} --accept-table {table.name}` to resume with it as it is"
    return PromiseBrokenError(
        "table_behind",
        f"{name} has the rows up to ledger record {version}, but had those up to {known} before",
        hint=f"was it restored from an older copy? Restore a newer one, or {accept}",
        pipeline=pipeline,
        table=table.name,
        ledger=known,
        version=version,
    )


def ahead(pipeline: str, table: Table, version: int, offset: int) -> PromiseBrokenError:
    """Return the error for a table whose last write is newer than the ledger's last record.

    Every older instance is fenced by now, so no other instance wrote the table meanwhile. Either
    the ledger was restored from an older copy, or the table is from a copy of this pipeline.
    """
    name = f"{pipeline}: the table {table.name} ({table.path})"
    return PromiseBrokenError(
        "table_ahead",
        f"{name} has the rows of the ledger's record {version}, but the ledger ends at {offset}",
        hint="was the ledger restored from an older copy, or is the table from a copy of this "
        f"pipeline? Run `eos recover {pipeline}` to see the ledger's records. If `eos recover "
        "--restore-tables` was interrupted, run it again",
        pipeline=pipeline,
        table=table.name,
        ledger=offset,
        version=version,
    )


def replaced(pipeline: str, table: Table, known: TableState, now: str | None) -> PromiseBrokenError:
    """Return the error for a table that is gone or was recreated.

    `now` is the id of the table at this path; None if there is none."""
    name = f"{pipeline}: the table {table.name} ({table.path})"
    accept = f"run `eos recover {pipeline} --accept-table {table.name}` to resume with it as it is"
    before, at = known.id, known.at
    return PromiseBrokenError(
        "table_replaced",
        f"{name} was recreated (its id changed from {before} to {now}): it had all rows up to the "
        f"ledger's record {at}"
        if now
        else f"{name} does not exist: it had all rows up to the ledger's record {at}",
        hint=f"restore it, or {accept}",
        pipeline=pipeline,
        table=table.name,
    )


def fenced(pipeline: str, table: Table, version: int, offset: int) -> FencedError:
    """Return the error for a table that has another last write than this instance just made.

    Only a newer instance of the pipeline writes under the same application id."""
    name = f"{pipeline}: the table {table.name} ({table.path})"
    return FencedError(
        "table_fenced",
        f"{name} has the rows of the ledger's record {version}, but this instance is at {offset}: "
        "a newer instance owns the pipeline",
        hint="do not restart this instance",
        pipeline=pipeline,
        table=table.name,
    )
