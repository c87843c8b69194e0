"""One rule says what a Delta table lacks: at startup, in `recover` and in `verify`."""

from __future__ import annotations

import pytest

from eos.delta.table_status import TableStatus, table_status

NO_ATTEMPT = -1


@pytest.mark.parametrize(
    ("known", "at", "newest", "status"),
    [
        (4, 4, NO_ATTEMPT, TableStatus.COMPLETE),
        (4, 4, 4, TableStatus.COMPLETE),
        (4, 4, 6, TableStatus.OWED),
        (4, 6, 6, TableStatus.COMPLETE),  # the write was done, and the run ended before the next
        (4, 3, 6, TableStatus.BEHIND),
        (4, 3, NO_ATTEMPT, TableStatus.BEHIND),
        (4, 5, 6, TableStatus.AHEAD),  # no attempt of this ledger wrote it
        (4, 7, 6, TableStatus.AHEAD),
        (4, 5, NO_ATTEMPT, TableStatus.AHEAD),
        (6, 6, 4, TableStatus.COMPLETE),  # recover accepted the table after that attempt
    ],
)
def test_the_status_of_a_table(known: int, at: int, newest: int, status: TableStatus) -> None:
    assert table_status(known, at, newest) is status
