"""Others read the audit table, too: what they see is what its own library sees, all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from support import delta_reader

from eos.audit import rows as made
from eos.audit.projection import Projection
from eos.audit.table import TransactionsTable
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.receipt import Receipt
from eos.ledger.record import LedgerRecord, Position, nested

COMMITS = 70  # maintenance comes after 64
Rows = Sequence[Mapping[str, Any]]


def record(number: int) -> LedgerRecord:
    """Two source and two target partitions; one in ten comes after an attempt that was aborted,
    one in ten wrote nothing."""
    sources = [TopicPartition("in", partition) for partition in range(2)]
    receipts = [Receipt("out", p, 5, 9 * number, 9 * number + 4, 99, -number) for p in range(2)]
    attempt = {
        "number": 1,
        "begun_ms": 1_700_000_000_123 + number,
        "starts": nested(dict.fromkeys(sources, number)),
        "receipts": [each.as_json() for each in receipts] if number % 10 else [],
    }
    failed = {"producer_id": 9, "epoch": number, "error": "task_failed", "reason": "it's \u00fc"}
    return LedgerRecord(
        "attempt",
        Position(dict.fromkeys(sources, number + 1), {}, "q", number),
        {"deployment": "d", "host": "h", "process": 1},
        1_700_000_000_456 + number,
        2 * number,
        Identity(10, number),
        attempt,
        failed=[failed] if number % 10 == 5 else [],
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TransactionsTable:
    """With all that maintenance leaves behind: files that are gone, checkpoints, a shorter log."""
    kept = TransactionsTable(tmp_path_factory.mktemp("audit") / "transactions")
    for number in range(COMMITS):
        kept.known("p/lid")
        kept.append(made.table(made.rows("p", "l", "lid", [record(number)])), "p/lid", 2 * number)
        if number % 64 == 63:
            Projection(kept, None, "p", "l").maintain(64)
    other = made.table(made.rows("another", "l2", "lid2", [record(1)]))
    kept.append(other, "another/lid2", 2)
    assert list(kept.location.glob("_delta_log/*.checkpoint.parquet"))
    return kept


@pytest.fixture(scope="module")
def own(table: TransactionsTable) -> Rows:
    found = table.query("SELECT * FROM transactions")
    kinds = {(row["pipeline"], row["outcome"], row["target_topic"]) for row in found}
    assert len(kinds) == 4
    assert len(found) == 2 * COMMITS - 7 + 7 + 2
    return ordered(found)


def ordered(rows: Rows) -> Rows:
    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (row["pipeline"], row["ledger_offset"], row["outcome"], row["target_partition"] or 0)

    return sorted(rows, key=place)


def test_polars(table: TransactionsTable, own: Rows):
    found = pl.scan_delta(str(table.location)).collect()
    assert set(found.columns) == set(made.NAMES)
    assert ordered(found.to_dicts()) == own
    one = pl.scan_delta(str(table.location)).filter(pl.col("ledger_offset") == 10).collect()
    assert one["epoch"].to_list() == [5, 5, 5]


@pytest.mark.long
@pytest.mark.spark
def test_spark(table: TransactionsTable, own: Rows):
    assert ordered(delta_reader.read(table.location)) == own
