"""`eos recover --rewind-to` for jobs whose source is a DataFrame: the ledger has no offsets."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from support.errors import raises

from eos.errors import UsageError
from eos.kafka.api import Identity
from eos.ledger.record import BATCH_QUERY, LedgerRecord, Position
from eos.recover.rewind import rewind

OWNER = {"deployment": "d"}


def view_of(*positions: Position) -> Any:
    """A snapshot of a job whose ledger has one record for each position."""
    records = [
        LedgerRecord("attempt", position, OWNER, 1_000 * at, at, Identity(1, at), {"number": 1})
        for at, position in enumerate(positions)
    ]
    return SimpleNamespace(
        name="daily",
        position=positions[-1],
        last=records[-1],
        ledger=SimpleNamespace(newest_first=lambda _: iter(records[::-1])),
        planned=SimpleNamespace(is_dataframe=True, dedup=None, tables=(), sink_topics=("out",)),
        source=SimpleNamespace(earliest=lambda _: {}, latest=lambda _: {}),
        newest_attempt=lambda _until: None,
        require_same_topics=lambda: None,
        moved=lambda ends: replace(positions[-1], ends=ends, is_reset=True),
        group=lambda _: {},
    )


def batch(*runs: str) -> Position:
    return Position({}, {}, BATCH_QUERY, len(runs) - 1, runs=runs)


def test_the_runs_of_a_batch_job_after_that_record_can_be_repeated() -> None:
    view = view_of(batch("mon"), batch("mon", "tue"), batch("mon", "tue", "wed"))
    change = rewind("0")(view)
    assert change.after is not None
    assert (change.after.runs, change.after.batch_id) == (("mon",), 0)
    assert "if these runs are repeated, they write again: tue, wed" in change.remarks
    nothing = rewind("2")(view)
    assert nothing.is_nothing
    assert nothing.remarks == ["the ledger is at that position"]


def test_a_streaming_dataframe_is_not_rewound() -> None:
    """Only its checkpoint knows the offsets, so a rewind would change nothing."""
    view = view_of(*(Position({}, {}, "a-query", at) for at in range(3)))
    with raises("rewind_without_offsets", UsageError):
        rewind("0")(view)
