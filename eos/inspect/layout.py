"""How does text output of `eos status`, `eos recover` and `eos audit` show times and tables?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from eos.ledger.record import LedgerRecord


def utc(at: datetime | None) -> str:
    """Return a UTC time as text with milliseconds, in a form that `--since` and `--rewind-to`
    accept; `-` for None."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if at else "-"


def record_time(record: LedgerRecord) -> str:
    return utc(datetime.fromtimestamp(record.at_ms / 1000, timezone.utc))


def columns(rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield the rows as lines with aligned columns.

    The first `left` columns are aligned to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        aligned = [
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(cells)
        ]
        yield "  ".join(aligned).rstrip()
