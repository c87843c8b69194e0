"""How is a ledger record's time written, so that `eos recover --rewind-to` accepts it?"""

from __future__ import annotations

from datetime import datetime, timezone

from eos.ledger.record import LedgerRecord


def record_time(record: LedgerRecord) -> str:
    """Return the time of the record as text that `--rewind-to` accepts."""
    time = datetime.fromtimestamp(record.at_ms / 1000, timezone.utc)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
