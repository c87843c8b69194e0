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
# So many offsets of a ledger are put into order at a time: the library sorts in memory.
_SORTED_MAX = 20_000
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
    """Oldest first, and one at a time: neither they nor their rows need fit into memory. Without
    `since` the ledger's newest records, so many; without both, everything."""
    where = f"pipeline = '{_quoted(pipeline)}' AND ledger = '{_quoted(ledger)}'"
    newest = table.query(
        "SELECT ledger_id, min(ledger_offset) AS oldest, "  # noqa: S608 - no parameters; quoted
        "max(ledger_offset) AS newest, max(ended_at) AS at "
        f"FROM transactions WHERE {where} GROUP BY ledger_id"
    )
    ledgers = [
        (each["ledger_id"], each["oldest"], each["newest"]) for each in sorted(newest, key=_at)
    ]
    if since is not None:
        where += f" AND ended_at >= to_timestamp_micros({int(since.timestamp() * 1_000_000)})"
    elif records_max is not None and ledgers:
        ledger_id, oldest, last = ledgers[-1]
        ledgers = [(ledger_id, max(oldest, last - 2 * records_max + 1), last)]
    yield from each_of(_rows(table, where, ledgers))


def _rows(
    table: TransactionsTable, where: str, ledgers: Sequence[tuple[str, int, int]]
) -> Iterator[Mapping[str, Any]]:
    """Of each ledger, from one offset to another, a stretch after the other. What is aborted comes
    before the record that tells of it; what ended a run behind it all."""
    for ledger_id, oldest, newest in ledgers:
        for start in range(oldest, newest + 1, _SORTED_MAX):
            end = min(start + _SORTED_MAX, newest + 1)
            yield from table.stream(
                "SELECT * FROM transactions "  # noqa: S608 - the library has no parameters; quoted
                f"WHERE {where} AND ledger_id = '{_quoted(ledger_id)}' "
                f"AND ledger_offset >= {start} AND ledger_offset < {end} "
                f"ORDER BY ledger_offset, outcome = '{COMMITTED}', epoch, "
                "producer_id, target_topic NULLS FIRST, target_partition NULLS FIRST"
            )


def _at(found: Mapping[str, Any]) -> datetime:
    at: datetime | None = found["at"]
    return at or _OLDEST


def _quoted(text: str) -> str:
    return text.replace("'", "''")
