"""Reads one pipeline's part of the table: the newest, or what came since a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from eos.audit.history import COMMITTED, Transaction, each_of
from eos.audit.table import TransactionsTable

# So many records of the ledger are looked at if nothing else is asked for; each has a marker
# behind it. In files that hold older ones only nothing is read.
RECORDS_MAX = 1000
_OLDEST = datetime.min.replace(tzinfo=timezone.utc)


def look(
    table: TransactionsTable, pipeline: str, ledger: str, since: datetime | None = None
) -> list[Transaction]:
    """Oldest first."""
    return list(walk(table, pipeline, ledger, since, RECORDS_MAX))


def walk(
    table: TransactionsTable,
    pipeline: str,
    ledger: str,
    since: datetime | None = None,
    records_max: int | None = None,
) -> Iterator[Transaction]:
    """Oldest first, and one at a time: all of them need not fit into memory. Without `since` the
    ledger's newest records, so many; without both, everything."""
    where = f"pipeline = '{_quoted(pipeline)}' AND ledger = '{_quoted(ledger)}'"
    newest = table.query(
        "SELECT ledger_id, max(ledger_offset) AS newest, "  # noqa: S608 - no parameters; quoted
        "max(ended_at) AS at "
        f"FROM transactions WHERE {where} GROUP BY ledger_id"
    )
    if not newest:
        return
    if since is not None:
        where += f" AND ended_at >= to_timestamp_micros({int(since.timestamp() * 1_000_000)})"
    elif records_max is not None:
        last = max(newest, key=_at)
        where += f" AND ledger_id = '{_quoted(last['ledger_id'])}'"
        where += f" AND ledger_offset > {last['newest'] - 2 * records_max}"
    yield from each_of(
        table.stream(
            "SELECT * FROM transactions "  # noqa: S608 - the library has no parameters; quoted
            f"WHERE {where} ORDER BY {_order(newest)}"
        )
    )


def _order(newest: Sequence[Mapping[str, Any]]) -> str:
    """What is aborted comes before the record that tells of it; what ended a run behind it all."""
    ledgers = " ".join(
        f"WHEN '{_quoted(each['ledger_id'])}' THEN {place}"
        for place, each in enumerate(sorted(newest, key=_at))
    )
    return (
        f"CASE ledger_id {ledgers} END, ledger_offset, outcome = '{COMMITTED}', epoch, "
        "producer_id, target_topic NULLS FIRST, target_partition NULLS FIRST"
    )


def _at(found: Mapping[str, Any]) -> datetime:
    at: datetime | None = found["at"]
    return at or _OLDEST


def _quoted(text: str) -> str:
    return text.replace("'", "''")
