"""How are one pipeline's transactions read from the audit table?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from eos.audit.history import COMMITTED, Transaction, each_of
from eos.audit.table import TransactionsTable

# Ledger records to read by default. Each is followed by a marker. Files with older ones only are
# not read.
RECORDS_MAX = 1000
# Ledger offsets to sort at a time: the library sorts in memory.
_SORTED_MAX = 20_000
_OLDEST = datetime.min.replace(tzinfo=timezone.utc)


def read_transactions(
    table: TransactionsTable, pipeline: str, ledger: str, since: datetime | None = None
) -> list[Transaction]:
    """Return the pipeline's newest transactions, or all since a time, oldest first."""
    return list(walk(table, pipeline, ledger, since, RECORDS_MAX))


def walk(
    table: TransactionsTable,
    pipeline: str,
    ledger: str,
    since: datetime | None = None,
    records_max: int | None = None,
) -> Iterator[Transaction]:
    """Yield transactions, oldest first, one at a time.

    Neither transactions nor rows need to fit into memory. `since` selects by time, `records_max`
    selects the newest ledger records. Without both, all are read.
    """
    condition = f"pipeline = '{_escape(pipeline)}' AND ledger = '{_escape(ledger)}'"
    newest = table.query(
        "SELECT ledger_id, min(ledger_offset) AS oldest, "  # noqa: S608 - no parameters; quoted
        "max(ledger_offset) AS newest, max(ended_at) AS at "
        f"FROM transactions WHERE {condition} GROUP BY ledger_id"
    )
    ledgers = [
        (each["ledger_id"], each["oldest"], each["newest"]) for each in sorted(newest, key=_time_of)
    ]
    if since is not None:
        condition += f" AND ended_at >= to_timestamp_micros({int(since.timestamp() * 1_000_000)})"
    elif records_max is not None and ledgers:
        ledger_id, oldest, last = ledgers[-1]
        ledgers = [(ledger_id, max(oldest, last - 2 * records_max + 1), last)]
    yield from each_of(_rows(table, condition, ledgers))


def _rows(
    table: TransactionsTable, condition: str, ledgers: Sequence[tuple[str, int, int]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of each ledger between two offsets, part by part.

    Aborted attempts precede the record that lists them. Attempts aborted at the end of a run share
    the last record's offset.
    """
    for ledger_id, oldest, newest in ledgers:
        for start in range(oldest, newest + 1, _SORTED_MAX):
            end = min(start + _SORTED_MAX, newest + 1)
            yield from table.stream(
                "SELECT * FROM transactions "  # noqa: S608 - the library has no parameters; quoted
                f"WHERE {condition} AND ledger_id = '{_escape(ledger_id)}' "
                f"AND ledger_offset >= {start} AND ledger_offset < {end} "
                f"ORDER BY ledger_offset, outcome = '{COMMITTED}', epoch, "
                "producer_id, target_topic NULLS FIRST, target_partition NULLS FIRST"
            )


def _time_of(found: Mapping[str, Any]) -> datetime:
    at: datetime | None = found["at"]
    return at or _OLDEST


def _escape(text: str) -> str:
    return text.replace("'", "''")
