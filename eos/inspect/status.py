"""How a pipeline is this moment: does it run, whose is it, how far it came, what it waits for.

Only looks: nothing is locked, fenced, written or created. A pipeline that runs goes on meanwhile,
so what is asked later may be newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eos.deadline import Deadline
from eos.errors import EosError
from eos.inspect.audit_live import Open, opened
from eos.inspect.snapshot import View, soon
from eos.inspect.snapshot import look as look_around
from eos.kafka.api import TopicPartition, TransactionState
from eos.kafka.client import Wire
from eos.ledger.record import Record
from eos.plan.plan import Plan
from eos.startup.liveness import Runs, running

_HISTORY_MAX = 200  # so far back is the last attempt looked for
_ASK_MS = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """One source partition. `ledger`: what is read next; none: a start reads it from `earliest`.
    `stable`: so far can be read; `latest`: so far is written, by whom that has not committed."""

    partition: TopicPartition
    ledger: int | None
    group: int | None
    stable: int
    latest: int
    lag: int


@dataclass(frozen=True, slots=True)
class Status:
    """`attempt`: the last committed one. `transaction`: what the coordinator has of the pipeline;
    none: it knows nothing, or does not tell. `open`: what is open on ledger, targets and on what is
    read next, whoever's it is."""

    planned: Plan
    runs: Runs
    process: int | None = None
    last: Record | None = None
    attempt: Record | None = None
    transaction: TransactionState | None = None
    open: Sequence[Open] = ()
    rows: Sequence[Row] = ()
    planned_batch: int | None = None  # by Spark, and not committed

    @property
    def lag(self) -> int:
        return sum(row.lag for row in self.rows)

    @property
    def is_writing(self) -> bool:
        return self.transaction is not None and self.transaction.phase == "Ongoing"

    @property
    def hanging(self) -> Sequence[Open]:
        """Nobody will end these."""
        return [each for each in self.open if not each.owner]

    @property
    def is_fine(self) -> bool:
        return self.runs is not Runs.DIED and not self.hanging


def look(planned: Plan, wire: Wire) -> Status:
    view = look_around(planned, wire)
    planned = view.planned  # with the deployment's id
    transaction = _transaction(wire, planned.names.transactional_id)
    rows = _rows(view)
    runs, process = running(planned, view.last)
    records = view.ledger.history(_HISTORY_MAX, soon()) if view.has_ledger else []
    return Status(
        planned,
        runs,
        process,
        view.last,
        next((each for each in records if each.kind == "attempt"), None),
        transaction,
        _open(view, rows),
        rows,
        _planned_batch(view),
    )


def _transaction(wire: Wire, transactional_id: str) -> TransactionState | None:
    try:
        return wire.transaction_state(transactional_id, Deadline.after_ms(_ASK_MS))
    except EosError:
        return None  # it never ran, has expired, or is not for this user's eyes


def _rows(view: View) -> list[Row]:
    ends = view.position.ends
    here = sorted(view.partitions())
    if not here:
        return []
    group = view.group(here) or {}
    first = view.source.earliest([tp for tp in here if tp not in ends])
    stable = view.wire.list_offsets(here, "latest", committed=True, deadline=soon())
    latest = view.source.latest(here)
    return [
        Row(
            tp,
            ends.get(tp),
            group.get(tp),
            stable[tp],
            latest[tp],
            max(0, stable[tp] - ends.get(tp, first.get(tp, 0))),
        )
        for tp in here
    ]


def _open(view: View, rows: Sequence[Row]) -> Sequence[Open]:
    """On the ledger, the targets, and the source partitions that can't be read to their end."""
    planned = view.planned
    topics = {planned.names.ledger, *planned.sink_topics}
    there = view.wire.topics(sorted(topics), soon())
    partitions = [
        TopicPartition(name, number)
        for name, info in there.items()
        if not info.error
        for number in range(info.partitions)
    ]
    partitions += [row.partition for row in rows if row.stable < row.latest]
    return opened(view.wire, partitions, planned.names.transactional_id) if partitions else []


def _planned_batch(view: View) -> int | None:
    newest = view.newest()
    if newest is None:
        return None
    planned = newest.planned()
    return None if planned == newest.committed() else planned
