"""Takes a pipeline, to run it or to put it right: look, fence, read (rule R5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eos.deadline import Deadline
from eos.errors import EosError, FencedError, PromiseBrokenError, Recovery
from eos.faults import Dies, Points
from eos.kafka.api import Identity
from eos.kafka.client import KafkaClient
from eos.ledger.ledger import Ledger
from eos.ledger.record import LedgerRecord, Position
from eos.observe.bus import Bus
from eos.plan.plan import BROKERS_CHOICE, Plan
from eos.startup.deployment import identified
from eos.startup.namesakes import require_own_names, require_unused_group
from eos.startup.ownership import is_free, owner, require_free
from eos.startup.source_state import LiveSource
from eos.transaction.coordinator import Coordinator
from eos.transaction.failed_attempts import FailedAttempts
from eos.transaction.micro_batch import STEP_TIMEOUT_MS, MicroBatches
from eos.transaction.ownership_check import own_timeout_ms

_MARKER_MS = 5_000
_LOOKS_MAX = 3
_ASK_MS = 10_000  # a coordinator that has just moved reads its log first


@dataclass(frozen=True, slots=True)
class Acquired:
    """Ours from here on: whoever had the pipeline before can't commit any more, so `last` is the
    ledger's last word."""

    planned: Plan
    ledger: Ledger
    coordinator: Coordinator
    points: Points
    last: LedgerRecord | None
    left_open: Identity | None = None  # by who had it before: our fence aborted it

    def batches(self, position: Position, source: LiveSource, bus: Bus) -> MicroBatches:
        return MicroBatches(
            self.planned.names.pipeline,
            self.coordinator,
            self.ledger,
            position,
            bus,
            self.points,
            source,
            self.last,
            failed=FailedAttempts(self._left_open()),
        )

    def _left_open(self) -> list[dict[str, Any]]:
        if self.left_open is None or (self.last and self.last.identity == self.left_open):
            return []
        producer_id, epoch = self.left_open
        why = "its process died or was replaced: the fence of the next one aborted it"
        told = {"producer_id": producer_id, "epoch": epoch, "reason": why}
        return [{**told, "error": FencedError.code}]


def acquire(
    planned: Plan,
    wire: KafkaClient,
    crash: Dies,
    deadline: Deadline,
    *,
    is_forced: bool,
    skips_foreign: bool = False,
    examine: Callable[[LedgerRecord | None], None] | None = None,
) -> Acquired:
    """Fence every older copy, and return the ledger's last record.

    Fences nobody if the last record is of another deployment that may be alive, unless forced. Nor
    if `examine` raises for the last record: it checks this machine's files against it, so that a
    copy that could not run stops none that does. Recovery `skips_foreign`: it decides about records
    that the pipeline did not write.
    """
    planned = identified(planned)
    names = planned.names
    ledger = ledger_of(planned, wire, skips_foreign=skips_foreign)
    ledger.ensure_topic(BROKERS_CHOICE, deadline)
    last = ledger.look(deadline)
    require_own_names(planned, wire, last, deadline, is_forced=is_forced)
    if last is None and not skips_foreign:  # recovery may take the group for its start
        require_unused_group(planned, wire, deadline)
    if not is_free(planned, last) and not is_forced:
        # EndTxn is answered before its marker lies on the ledger: a clean end of a moment ago may
        # be told to whoever asked for it, and not be seen here yet.
        ledger.wait_at_rest(_MARKER_MS, deadline)
        last = ledger.look(deadline)
    require_free(planned, last, is_forced=is_forced)
    if examine is not None:
        _examine(ledger, last, examine, deadline)
    points = Points(crash)
    coordinator = Coordinator(
        wire,
        names.transactional_id,
        names.group,
        own_timeout_ms(planned.transaction_timeout_ms),
        reached=points.reached,
    )
    left_open = _left_open(wire, names.transactional_id, deadline)
    coordinator.fence(deadline)
    wire.agree_on_profile(deadline)
    with still_ours(coordinator, ledger):
        last = ledger.read_last(deadline)
    return Acquired(planned, ledger, coordinator, points, last, left_open)


def _examine(
    ledger: Ledger,
    last: LedgerRecord | None,
    examine: Callable[[LedgerRecord | None], None],
    deadline: Deadline,
) -> None:
    """Before the fence, the checkpoint may already have a commit that the ledger does not show: of
    a copy that runs, or because the commit's marker is still on its way. So only a record that
    stays the last one of a ledger at rest is held against this machine's files. Otherwise the check
    after the fence decides."""
    for _ in range(_LOOKS_MAX):
        try:
            return examine(last)
        except PromiseBrokenError:
            if not ledger.wait_at_rest(_MARKER_MS, deadline):
                return None
            before, last = last, ledger.look(deadline)
            if _offset(before) == _offset(last):
                raise
    return None


def _offset(record: LedgerRecord | None) -> int:
    return -1 if record is None else record.offset


def _left_open(wire: KafkaClient, transactional_id: str, deadline: Deadline) -> Identity | None:
    """For the audit table only, so no answer is as good as any."""
    within = Deadline.after_ms(deadline.at_most_ms(_ASK_MS))
    try:
        found = wire.transaction_state(transactional_id, within)
    except EosError:
        return None
    return found.identity if found.phase == "Ongoing" else None


@contextmanager
def still_ours(coordinator: Coordinator, ledger: Ledger) -> Iterator[None]:
    """Around what compares ledger, group and checkpoint after our fence.

    They agree as long as nobody moves them. But another copy may fence us between two looks, and
    commit: then the group is ahead of the ledger that we read, or our empty ledger has a
    checkpoint. That is no broken promise, and nothing is to be recovered: we were replaced. Nor is
    it one if a stale leader showed us a ledger that ends too soon: then we start again.
    """
    try:
        yield
    except PromiseBrokenError as broken:
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        try:
            _attempt_in_vain(coordinator, ledger, deadline)
        except EosError as told:
            is_stale = told.fields.get("case") == "ledger_stale"
            if is_stale or told.recovery is Recovery.FENCED:
                raise told from broken
            # else what was found tells more
        raise


def _attempt_in_vain(coordinator: Coordinator, ledger: Ledger, deadline: Deadline) -> None:
    """Only an owner may write a record and abort it, and where it lands is the ledger's end."""
    identity = coordinator.begin(deadline)
    try:
        record = ledger.record("start", Position(ends={}, topic_ids={}), identity=identity)
        ledger.append(coordinator.produce, record, identity, deadline)
    finally:
        coordinator.abort(deadline)


def ledger_of(planned: Plan, wire: KafkaClient, *, skips_foreign: bool = False) -> Ledger:
    names = planned.names
    return Ledger(wire, names.ledger, names.pipeline, owner(planned), skips_foreign=skips_foreign)
