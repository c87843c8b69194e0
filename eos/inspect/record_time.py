"""The time of a ledger record, as `eos recover --rewind-to` accepts it."""

from __future__ import annotations

from datetime import datetime, timezone

from eos.ledger.record import LedgerRecord


def record_time(record: LedgerRecord) -> str:
    """When it was written, as it can be given back to `--rewind-to`."""
    time = datetime.fromtimestamp(record.at_ms / 1000, timezone.utc)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
