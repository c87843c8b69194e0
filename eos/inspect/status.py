"""How does `eos status` find out whether a pipeline runs, who owns it, and what its lag is?

Nothing is locked, fenced, written or created. A running pipeline continues meanwhile, so values
that are read later may be newer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from eos.errors import EosError
from eos.inspect.cluster_view import OpenTransaction
from eos.inspect.snapshot import Snapshot, short_deadline
from eos.inspect.snapshot import take_snapshot as look_around
from eos.kafka.api import DescribedTransaction, TopicPartition
from eos.kafka.client import KafkaClient
from eos.ledger.record import LedgerRecord, Position
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.startup.liveness import Liveness, liveness_of
from eos.startup.resume_position import resume_position

_HISTORY_MAX = 200  # number of records to search for the last attempt
_ASK_MS = 10_000
_MARKER_MS = 2_000  # `--watch` reports a wait of five seconds as a cluster that does not answer


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source partition.

    `ledger` is the next offset to read; None if the ledger lacks this partition. Records below
    `stable` can be read now. Records from `stable` to `latest` wait for an open transaction of
    another producer.
    """

    partition: TopicPartition
    ledger: int | None
    group: int | None
    stable: int
    latest: int
    lag: int


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The status of a pipeline.

    `last` is the newest ledger record, `attempt` the newest one of a micro-batch. `transaction` is
    the coordinator's state of the pipeline's transactional id; None if it is unknown or can't be
    read. `open` has all producers' open transactions on the ledger, on the targets, and on source
    partitions that can't be read to the end.
    """

    planned: Plan
    runs: Liveness
    process: int | None = None
    last: LedgerRecord | None = None
    attempt: LedgerRecord | None = None
    transaction: DescribedTransaction | None = None
    open: Sequence[OpenTransaction] = ()
    rows: Sequence[SourceRow] = ()
    planned_batch: int | None = None  # planned by Spark and not committed

    @property
    def lag(self) -> int:
        return sum(row.lag for row in self.rows)

    @property
    def is_writing(self) -> bool:
        return self.transaction is not None and self.transaction.phase == "Ongoing"

    @property
    def hanging(self) -> Sequence[OpenTransaction]:
        """Return the transactions that no coordinator will end."""
        return [each for each in self.open if each.hangs]

    @property
    def is_fine(self) -> bool:
        return self.runs is not Liveness.DIED and not self.hanging


def read_status(planned: Plan, client: KafkaClient) -> PipelineStatus:
    view = look_around(planned, client)
    planned = view.planned  # with the deployment's id
    transaction = view.cluster.transaction(_ASK_MS)
    rows = _rows(view)
    runs, process = liveness_of(planned, view.last)
    records = view.ledger.history(_HISTORY_MAX, short_deadline()) if view.has_ledger else []
    return PipelineStatus(
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


def _rows(view: Snapshot) -> list[SourceRow]:
    ends = view.position.ends
    here = sorted(view.partitions())
    if not here:
        return []
    group = view.group(here) or {}
    first = dict(view.source.earliest([tp for tp in here if tp not in ends]))
    if view.last is None:
        with suppress(EosError):  # `eos recover` shows why the first run would stop
            first.update(_start(view).ends)
    stable = view.stable_ends(here)
    latest = view.source.latest(here)
    return [
        SourceRow(
            tp,
            ends.get(tp),
            group.get(tp),
            stable[tp],
            latest[tp],
            max(0, stable[tp] - ends.get(tp, first.get(tp, 0))),
        )
        for tp in here
    ]


def _start(view: Snapshot) -> Position:
    """Return where the first run of the pipeline begins."""
    return resume_position(view.planned, view.source, None, Bus(), short_deadline())


def _open(view: Snapshot, rows: Sequence[SourceRow]) -> Sequence[OpenTransaction]:
    """Return open transactions on the ledger and targets, and those that block a source."""
    planned = view.planned
    own, blocked = view.cluster, [row.partition for row in rows if row.stable < row.latest]
    partitions = own.partitions([planned.names.ledger, *planned.sink_topics])
    if not own.is_group_mirrored:
        return own.open_transactions(own.producers([*partitions, *blocked]), _MARKER_MS)
    other = replace(own, client=own.source)
    opened = own.open_transactions(own.producers(partitions), _MARKER_MS)
    return [*opened, *other.open_transactions(other.producers(blocked), _MARKER_MS)]


def _planned_batch(view: Snapshot) -> int | None:
    newest = view.newest()
    if newest is None:
        return None
    planned = newest.planned()
    return None if planned == newest.committed() else planned
