"""How does a process acquire a pipeline, for a run or for a recovery?

It looks at the ledger's last record, fences every older instance, and reads the ledger to its end.
The caller then decides where to resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
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
from eos.startup.deployment import with_deployment
from eos.startup.namesakes import require_own_names, require_unused_group
from eos.startup.ownership import is_free, owner, require_free
from eos.startup.source_state import LiveSource
from eos.startup.yarn_attempt import yarn_attempt
from eos.transaction.coordinator import Coordinator
from eos.transaction.failed_attempts import FailedAttempts
from eos.transaction.group_mirror import GroupMirror
from eos.transaction.micro_batch import STEP_TIMEOUT_MS, MicroBatches
from eos.transaction.ownership_check import own_timeout_ms

_MARKER_MS = 5_000
_LOOKS_MAX = 3
_ASK_MS = 10_000  # long enough for a coordinator that still reads its log


@dataclass(frozen=True, slots=True)
class Acquired:
    """A pipeline that this process owns. The previous owner is fenced, so `last` stays the ledger's
    last record until this process writes one."""

    planned: Plan
    ledger: Ledger
    coordinator: Coordinator
    points: Points
    last: LedgerRecord | None
    left_open: Identity | None = None  # the open attempt that our fence aborted

    def batches(self, position: Position, source: LiveSource, bus: Bus) -> MicroBatches:
        """Return the object that commits. Close its `group` at the end."""
        names, other, mirror = self.planned.names, self.planned.source_cluster, None
        if other is not None:
            mirror = GroupMirror(source.client, names.group, other.name, bus)
        return MicroBatches(
            names.pipeline,
            self.coordinator,
            self.ledger,
            position,
            bus,
            self.points,
            source,
            self.last,
            mirror,
            failed=FailedAttempts(self._left_open()),
        )

    def _left_open(self) -> list[dict[str, Any]]:
        if self.left_open is None or (self.last and self.last.identity == self.left_open):
            return []
        producer_id, epoch = self.left_open
        reason = "its process died or was replaced: the next instance's fence aborted it"
        attempt = {"producer_id": producer_id, "epoch": epoch, "reason": reason}
        return [{**attempt, "error": FencedError.kind}]


def acquire(
    planned: Plan,
    client: KafkaClient,
    crash: Dies,
    deadline: Deadline,
    *,
    is_forced: bool,
    skips_foreign: bool = False,
    examine: Callable[[LedgerRecord | None], None] | None = None,
) -> Acquired:
    """Fence every older instance, and return the pipeline with the ledger's last record.

    Raise an error without fencing any instance in these cases:
    - The last record belongs to another instance that may be alive (`require_free`).
    - `examine` raises for the last record. It checks this machine's files. So an instance whose
      files don't fit the ledger does not fence an instance that can run.

    `eos recover` sets `skips_foreign`, because it handles records that the pipeline did not write.
    """
    planned = with_deployment(planned)
    names = planned.names
    ledger = ledger_of(planned, client, skips_foreign=skips_foreign)
    ledger.ensure_topic(BROKERS_CHOICE, deadline)
    last = ledger.peek(deadline)
    require_own_names(planned, client, last, deadline, is_forced=is_forced)
    if not skips_foreign:  # a recovery may start from the group's offsets
        unused = partial(require_unused_group, planned, client, deadline)
        last = _examine(ledger, last, unused, deadline)
    if not is_free(planned, last) and not is_forced:
        # The stop record of a clean end may not be visible yet: the broker responds to EndTxn
        # before it writes the marker to the ledger.
        ledger.wait_at_rest(_MARKER_MS, deadline)
        last = ledger.peek(deadline)
    require_free(planned, last, is_forced=is_forced, attempt=yarn_attempt())
    if examine is not None:
        _examine(ledger, last, examine, deadline)
    points = Points(crash)
    coordinator = Coordinator(
        client,
        names.transactional_id,
        names.group,
        own_timeout_ms(planned.transaction_timeout_ms),
        reached=points.reached,
    )
    left_open = _left_open(client, names.transactional_id, deadline)
    coordinator.fence(deadline)
    client.agree_on_profile(deadline)
    with still_ours(coordinator, ledger):
        last = ledger.read_last(deadline)
    return Acquired(planned, ledger, coordinator, points, last, left_open)


def _examine(
    ledger: Ledger,
    last: LedgerRecord | None,
    examine: Callable[[LedgerRecord | None], None],
    deadline: Deadline,
) -> LedgerRecord | None:
    """Call `examine` with the last record, and raise its error only if no transaction is open.
    Return the last record that was read.

    Before the fence, this machine's checkpoint or the group may contain a commit that the ledger
    does not show yet: another instance runs, or the commit's marker is not written yet. So the
    error is raised only if the record is still the last one after all transactions ended. Otherwise
    the error is ignored, and the same check runs again after the fence.
    """
    for _ in range(_LOOKS_MAX):
        try:
            examine(last)
            break
        except PromiseBrokenError:
            is_at_rest = ledger.wait_at_rest(_MARKER_MS, deadline)
            before, last = last, ledger.peek(deadline)
            if not is_at_rest:
                break
            if _offset(before) == _offset(last):
                raise
    return last


def _offset(record: LedgerRecord | None) -> int:
    return -1 if record is None else record.offset


def _left_open(client: KafkaClient, transactional_id: str, deadline: Deadline) -> Identity | None:
    """Return the identity of the transaction that is open now, for the audit table. Return None if
    there is none, or if the cluster does not respond."""
    within = Deadline.after_ms(deadline.at_most_ms(_ASK_MS))
    try:
        found = client.transaction_state(transactional_id, within)
    except EosError:
        return None
    return found.identity if found.phase == "Ongoing" else None


@contextmanager
def still_ours(coordinator: Coordinator, ledger: Ledger) -> Iterator[None]:
    """If a check in this context fails, look for a cause that needs no recovery, and raise its
    error instead.

    After the fence, ledger, group offsets and checkpoint agree unless another client changes them.
    Two other causes of a PromiseBrokenError are possible:
    - Another instance fenced this one between two checks, and committed. Then the group is ahead of
      the ledger that was read, or a checkpoint exists although that ledger was empty. Raise
      FencedError.
    - A stale leader returned an old end of the ledger. Raise `ledger_stale`. The next run reads all
      records.
    """
    try:
        yield
    except PromiseBrokenError as broken:
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        try:
            _attempt_in_vain(coordinator, ledger, deadline)
        except EosError as cause:
            is_fenced = cause.recovery is Recovery.FENCED and _is_replaced(coordinator, deadline)
            if is_fenced or cause.code == "ledger_stale":
                raise cause from broken
            # other errors explain less than the first one
        raise


def _is_replaced(coordinator: Coordinator, deadline: Deadline) -> bool:
    """Return whether another instance fenced this one, or may have, after the broker refused it.

    If the last granted timeout is this process's, the refusal has a cause in the list of
    `transaction.ownership_check`."""
    if coordinator.is_disputed:
        with suppress(EosError):
            return coordinator.describe(deadline).timeout_ms != coordinator.timeout_ms
    return True


def _attempt_in_vain(coordinator: Coordinator, ledger: Ledger, deadline: Deadline) -> None:
    """Test whether this instance still owns the pipeline and has read the whole ledger.

    Write a ledger record in a transaction, and abort it. Raise FencedError if another instance has
    fenced this one. Raise `ledger_stale` if the record's offset shows that the ledger has records
    which this instance did not read.
    """
    identity = coordinator.begin(deadline)
    try:
        record = ledger.record("start", Position(ends={}, topic_ids={}), identity=identity)
        ledger.append(coordinator.produce, record, identity, deadline)
    finally:
        coordinator.abort(deadline)


def ledger_of(planned: Plan, client: KafkaClient, *, skips_foreign: bool = False) -> Ledger:
    names = planned.names
    return Ledger(
        client,
        names.ledger,
        names.pipeline,
        owner(planned),
        skips_foreign=skips_foreign,
        declared=planned.declared,
    )
