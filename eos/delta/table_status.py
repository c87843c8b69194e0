"""Does a Delta table have every committed micro-batch, and which one does it lack?

Startup, `eos recover` and `eos verify` decide this by the same rule. It compares three offsets of
the ledger: `known`, the table's last write when the newest attempt began; `newest`, the record of
that attempt; and `at`, the last write that the table's own log has.

    at < known                      BEHIND    rows were removed: the table was restored
    at == newest, or none is newer  COMPLETE
    at == known < newest            OWED      the attempt is committed, and its rows are not written
    any other                       AHEAD     the ledger is older than the table
"""

from __future__ import annotations

from enum import Enum, auto


class TableStatus(Enum):
    COMPLETE = auto()
    OWED = auto()
    BEHIND = auto()
    AHEAD = auto()


def table_status(known: int, at: int, newest: int) -> TableStatus:
    """Return the status of a table. `newest` is -1 if the ledger has no attempt."""
    if at < known:
        return TableStatus.BEHIND
    if at == max(known, newest):
        return TableStatus.COMPLETE
    return TableStatus.OWED if at == known else TableStatus.AHEAD
