"""Reads one pipeline's part of the table: the newest, or what came since a time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from eos.audit.history import Transaction, transactions
from eos.audit.table import TransactionsTable

# So many records of the ledger are looked at if nothing else is asked for; each has a marker
# behind it. In files that hold older ones only nothing is read.
RECORDS_MAX = 1000
_ROWS_MAX = 5_000_000  # what fits into memory: more than that needs a later --since


def look(
    table: TransactionsTable, pipeline: str, ledger: str, since: datetime | None = None
) -> list[Transaction]:
    """Oldest first."""
    where = f"pipeline = '{_quoted(pipeline)}' AND ledger = '{_quoted(ledger)}'"
    newest = table.query(
        "SELECT ledger_id, max(ledger_offset) AS newest, "  # noqa: S608 - no parameters; quoted
        "max(ended_at) AS at "
        f"FROM transactions WHERE {where} GROUP BY ledger_id"
    )
    if not newest:
        return []
    if since is None:
        last = max(newest, key=_at)
        chosen = f"ledger_id = '{_quoted(last['ledger_id'])}' AND ledger_offset > "
        chosen += str(last["newest"] - 2 * RECORDS_MAX)
    else:
        chosen = f"ended_at >= to_timestamp_micros({int(since.timestamp() * 1_000_000)})"
    rows = table.query(
        "SELECT * FROM transactions "  # noqa: S608 - the library has no parameters; quoted
        f"WHERE {where} AND {chosen} LIMIT {_ROWS_MAX}"
    )
    order = {each["ledger_id"]: place for place, each in enumerate(sorted(newest, key=_at))}
    return transactions(sorted(rows, key=lambda row: _place(row, order)))


def _at(found: Mapping[str, Any]) -> datetime:
    at: datetime | None = found["at"]
    return at or datetime.min.replace(tzinfo=timezone.utc)


def _place(row: Mapping[str, Any], order: Mapping[str, int]) -> tuple[int, ...]:
    """What is aborted comes before the record that tells of it; what ended a run behind it all."""
    is_committed = row["outcome"] == "CompleteCommit"
    target = row["target_partition"]
    return (
        order[row["ledger_id"]],
        row["ledger_offset"],
        is_committed,
        row["epoch"],
        -1 if target is None else target,
    )


def _quoted(text: str) -> str:
    return text.replace("'", "''")
