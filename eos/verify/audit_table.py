"""Does the audit table agree with the ledger, row by row?

The audit table is a Delta table with the outcome of each transaction. The pipeline trims its
ledger: it deletes old records. In their place `eos verify` reads the table's rows, which it then
can't compare with the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from eos.audit import rows as made
from eos.audit.history import COMMITTED, transactions
from eos.audit.table import TransactionsTable
from eos.finding import Finding, Witness
from eos.kafka.api import Identity, TopicPartition
from eos.ledger.record import LedgerRecord
from eos.verify.history import CommittedAttempt, attempt_of_rows
from eos.verify.ledger import RECORDS_MAX

_KEY = ("ledger_offset", "outcome", "producer_id", "epoch", "target_topic", "target_partition")
_VERSION = "schema_version"
Row = Mapping[str, Any]


class LedgerRows:
    """The audit table's rows of one pipeline and one ledger topic."""

    def __init__(
        self, table: TransactionsTable, pipeline: str, ledger: str, ledger_id: str
    ) -> None:
        self._table = table
        self._names = (pipeline, ledger, ledger_id)

    def until(self) -> int:
        """Return the offset of the newest ledger record that the table has; -1 for none."""
        pipeline, _, ledger_id = self._names
        return self._table.known(f"{pipeline}/{ledger_id}")

    def first(self) -> int | None:
        """Return the offset of the oldest ledger record that the table has; None for none."""
        found = self._query("min(ledger_offset) AS first", "")
        return found[0]["first"] if found else None

    def older(self, start: int, end: int) -> Iterator[list[CommittedAttempt]]:
        """Yield the committed attempts that the table has at ledger offsets start <= offset < end.

        The attempts are in ledger order, in lists that may be empty. Use this for offsets that the
        ledger no longer has.
        """
        for low in range(start, end, 2 * RECORDS_MAX):  # a record and its marker
            rows = self._rows(low, min(end, low + 2 * RECORDS_MAX))
            committed = [row for row in rows if row["outcome"] == COMMITTED]
            committed.sort(key=lambda row: [row["ledger_offset"], str(row["target_topic"])])
            yield [attempt_of_rows(each) for each in transactions(committed)]

    def compare(
        self, records: Sequence[LedgerRecord], start: int, end: int, forged: Collection[int]
    ) -> Iterator[Finding]:
        """Yield a finding for each difference between the table and these ledger records.

        `records` has all ledger records at these offsets, except those that another producer wrote
        (`forged`). The table's rows of forged records are ignored.
        """
        expected = made.table(made.rows(*self._names, records)).to_pylist()
        found = [row for row in self._rows(start, end) if row["ledger_offset"] not in forged]
        yield from compare_rows(self._names[1], expected, found)

    def _rows(self, start: int, end: int) -> Sequence[Row]:
        return self._query("*", f" AND ledger_offset >= {start} AND ledger_offset < {end}")

    def _query(self, subject: str, more: str) -> Sequence[Row]:
        quoted = [name.replace("'", "''") for name in self._names]
        return self._table.query(
            f"SELECT {subject} FROM transactions "  # noqa: S608 - no parameters there; quoted
            f"WHERE pipeline = '{quoted[0]}' AND ledger = '{quoted[1]}' "
            f"AND ledger_id = '{quoted[2]}'{more}"
        )


def compare_rows(ledger: str, expected: Iterable[Row], found: Iterable[Row]) -> Iterator[Finding]:
    """Yield a finding for each difference between expected and found rows of the audit table.

    A row of an aborted attempt may be in the table only: a run adds such rows when it ends.
    """
    existing: dict[tuple[Any, ...], Row] = {}
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in found:
        existing[_key(row)] = row
        counts[_key(row)] += 1
    for row in expected:
        known = existing.pop(_key(row), None)
        if known is None:
            yield _finding(ledger, row, "missing in the table")
            continue
        if counts[_key(row)] > 1:
            yield _finding(ledger, row, f"{counts[_key(row)]} times in the table")
        for name in _differing(row, known):
            text = f"{name} is {known.get(name)!r} in the table, {row[name]!r} in the ledger"
            yield _finding(ledger, row, text)
    for row in existing.values():
        if row["outcome"] == COMMITTED:
            yield _finding(ledger, row, "the ledger has no such transaction")


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _differing(row: Row, known: Row) -> Iterator[str]:
    """Yield the names of the columns that differ between the rows.

    If an older release wrote the row `known`, its null columns are skipped.
    """
    is_older = (known.get(_VERSION) or 0) < row[_VERSION]
    for name, value in row.items():
        if name == _VERSION or (is_older and known.get(name) is None):
            continue
        if known.get(name) != value:
            yield name


def _finding(ledger: str, row: Row, text: str) -> Finding:
    offset = row["ledger_offset"]
    batch_id = row["batch_id"]
    witness = Witness(
        offset,
        row["kind"],
        -1 if batch_id is None else batch_id,
        row["attempt"],
        Identity(row["producer_id"], row["epoch"]),
    )
    of = f", {row['target_topic']}-{row['target_partition']}" if row["target_topic"] else ""
    message = f"the audit table's row of {witness}{of}: {text}"
    return Finding("audit_row", message, TopicPartition(ledger, 0), offset, witness)
