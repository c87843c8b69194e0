"""Does a Delta table have all committed micro-batches, or does it lack the newest one?

Startup, `eos recover` and `eos verify` decide this by the same rule. A write to a table is named by
the ledger offset of its micro-batch. `known` is the table's last write when the newest attempt
began, according to the ledger. `newest` is the ledger record of that attempt. `at` is the last
write in the table's own log.

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
    """Return the status of a table by the table above; `newest` is -1 if there is no attempt."""
    if at < known:
        return TableStatus.BEHIND
    if at == max(known, newest):
        return TableStatus.COMPLETE
    return TableStatus.OWED if at == known else TableStatus.AHEAD
