"""How are a pipeline's transactions and producer states read, with bounded memory?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from eos.audit.history import COMMITTED, Transaction, each_of
from eos.audit.producer_rows import states_of
from eos.audit.producer_states import ProducerStates
from eos.audit.table import ProducersTable, TransactionsTable
from eos.kafka.api import TopicPartition

# Ledger records to read by default. Each takes two offsets, one of them for its transaction marker.
# Files of the table that have only older records are not read.
RECORDS_MAX = 1000
# Ledger offsets per query: Delta's library sorts a query's rows in memory.
_SORTED_MAX = 20_000
_OLDEST = datetime.min.replace(tzinfo=timezone.utc)


def read_transactions(
    table: TransactionsTable, pipeline: str, ledger: str, since: datetime | None = None
) -> list[Transaction]:
    """Return the pipeline's transactions of the newest `RECORDS_MAX` ledger records.

    With `since`, return all that ended since then. The oldest comes first."""
    return list(walk(table, pipeline, ledger, since, RECORDS_MAX))


def read_producers(table: ProducersTable, pipeline: str, ledger: str) -> ProducerStates:
    """Return the pipeline's producer states; empty if there is no table."""
    rows = table.query(
        "SELECT * FROM producers "  # noqa: S608 - the library has no parameters; quoted
        f"WHERE pipeline = '{_escape(pipeline)}' AND ledger = '{_escape(ledger)}'"
    )
    ledger_id = rows[0]["ledger_id"] if rows else ""
    return states_of(rows, TopicPartition(ledger, 0), ledger_id)


def walk(
    table: TransactionsTable,
    pipeline: str,
    ledger: str,
    since: datetime | None = None,
    records_max: int | None = None,
) -> Iterator[Transaction]:
    """Yield the pipeline's transactions, oldest first, with bounded memory.

    `since` selects transactions that ended since then, `records_max` those of the newest ledger
    records. Without both, all transactions are read.
    """
    condition = f"pipeline = '{_escape(pipeline)}' AND ledger = '{_escape(ledger)}'"
    if since is not None:  # also for the ends of the ledgers: older offsets are not queried then
        condition += f" AND ended_at >= to_timestamp_micros({int(since.timestamp() * 1_000_000)})"
    newest = table.query(
        "SELECT ledger_id, min(ledger_offset) AS oldest, "  # noqa: S608 - no parameters; quoted
        "max(ledger_offset) AS newest, max(ended_at) AS at "
        f"FROM transactions WHERE {condition} GROUP BY ledger_id"
    )
    ledgers = [
        (each["ledger_id"], each["oldest"], each["newest"]) for each in sorted(newest, key=_time_of)
    ]
    if since is None and records_max is not None and ledgers:
        ledger_id, oldest, last = ledgers[-1]
        ledgers = [(ledger_id, max(oldest, last - 2 * records_max + 1), last)]
    yield from each_of(_rows(table, condition, ledgers))


def _rows(
    table: TransactionsTable, condition: str, ledgers: Sequence[tuple[str, int, int]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the table's rows for each (ledger id, first offset, last offset), in ledger order.

    At one ledger offset, rows of aborted attempts come before rows of the committed one.
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
