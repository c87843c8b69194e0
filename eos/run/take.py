"""Takes a pipeline, to run it or to put it right: look, fence, read (rule R5)."""

from __future__ import annotations

from dataclasses import dataclass

from eos.deadline import Deadline
from eos.faults import Dies, Points
from eos.observe.bus import Bus
from eos.plan.plan import BROKERS_CHOICE, Plan
from eos.run.ownership import owner, require_free
from eos.run.source import LiveSource
from eos.transaction.coordinator import Coordinator
from eos.transaction.ledger import Ledger
from eos.transaction.ledger_record import Position, Record
from eos.transaction.micro_batch import MicroBatches
from eos.transaction.wire import Wire


@dataclass(frozen=True, slots=True)
class Taken:
    """Ours from here on: whoever had the pipeline before can't commit any more, so `last` is the
    ledger's last word."""

    planned: Plan
    ledger: Ledger
    coordinator: Coordinator
    points: Points
    last: Record | None

    def batches(self, position: Position, source: LiveSource, bus: Bus) -> MicroBatches:
        return MicroBatches(
            self.planned.names.pipeline,
            self.coordinator,
            self.ledger,
            position,
            bus,
            self.points,
            source,
            is_new=self.last is None,
        )


def take(planned: Plan, wire: Wire, crash: Dies, deadline: Deadline, *, is_forced: bool) -> Taken:
    """Fences nobody if the last record is another deployment's that may be alive, unless forced."""
    names = planned.names
    ledger = ledger_of(planned, wire)
    ledger.ensure_topic(BROKERS_CHOICE, deadline)
    require_free(planned, ledger.look(deadline), is_forced=is_forced)
    points = Points(crash)
    coordinator = Coordinator(
        wire,
        names.transactional_id,
        names.group,
        planned.transaction_timeout_ms,
        reached=points.reached,
    )
    coordinator.fence(deadline)
    return Taken(planned, ledger, coordinator, points, ledger.read_last(deadline))


def ledger_of(planned: Plan, wire: Wire) -> Ledger:
    return Ledger(wire, planned.names.ledger, planned.names.pipeline, owner(planned))
