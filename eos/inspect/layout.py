"""How are times and tables written in text output?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from eos.ledger.record import LedgerRecord


def utc(at: datetime | None) -> str:
    """Return a UTC time with milliseconds, as `--since` and `--rewind-to` accept it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if at else "-"


def record_time(record: LedgerRecord) -> str:
    return utc(datetime.fromtimestamp(record.at_ms / 1000, timezone.utc))


def columns(rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield the rows as lines with aligned columns: the first `left` to the left, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        aligned = [
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(cells)
        ]
        yield "  ".join(aligned).rstrip()
