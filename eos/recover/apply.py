"""How does `eos recover` apply a change of the pipeline's position?

The steps are those of a startup: take the lock, compute the change, fence, then write one ledger
record of kind "recovery". So a change disturbs no pipeline that a startup would leave alone. The
change is computed before the fence, so that a refusal does not disturb a running pipeline. It is
computed again after the fence, and this result is applied.

A rewind may restore Delta tables. The order is:

1. Fence, so that no older instance writes a table.
2. Check all tables. A table that can't be restored stops the change here.
3. Restore the tables, one after the other.
4. Write the ledger record, with the new position and the tables' states.

If the process dies between 3 and 4, the ledger still has the old position. The next startup finds
the RESTORE in a table's history and stops, because rows would be lost. The same happens to an
instance that takes over in between. The command can be repeated: it skips restored tables.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass

from eos.errors import UnavailableError
from eos.faults import CrashPlan
from eos.inspect.snapshot import Snapshot, readable, short_deadline, take_snapshot
from eos.kafka.client import KafkaClient
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.plan.plan import Plan
from eos.recover.change import LedgerChange, Verb
from eos.recover.foreign_records import change_of
from eos.startup.acquire import acquire, still_ours
from eos.startup.deployment import with_deployment
from eos.startup.ownership import RunLock, require_free
from eos.startup.resume_position import require_no_members
from eos.startup.source_state import LiveSource, source_client


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """A change that was applied, and the offset of its ledger record; None if it needed none."""

    change: LedgerChange
    offset: int | None = None


def propose(planned: Plan, client: KafkaClient, verb: Verb, *, take_over: bool) -> LedgerChange:
    """Return the change that an option of `eos recover` would make, or raise why it is refused.

    Nothing is written, and a running pipeline is not disturbed.
    """
    view = take_snapshot(planned, client, skips_foreign=True)
    require_free(view.planned, view.last, is_forced=take_over)
    return change_of(verb, view)


def act(
    planned: Plan, client: KafkaClient, verb: Verb, *, reason: str, take_over: bool
) -> AppliedChange:
    planned = with_deployment(planned)
    lock = RunLock(planned)
    with closing(lock), closing(Bus()) as bus:
        lock.acquire(is_forced=take_over)
        bus.subscribe(Console())
        client.agree_on_profile(short_deadline())
        # An open transaction may hide the group's offsets now. The fence ends the transaction, so
        # the change is computed after the fence.
        early: LedgerChange | None = None
        with suppress(UnavailableError):
            early = propose(planned, client, verb, take_over=take_over)
        if early is not None and early.after is None:
            _rename(planned, early)
            return AppliedChange(early)
        source = LiveSource(planned, source_client(planned, client))
        if planned.commits_group:
            require_no_members(planned, source, short_deadline())
        crash = CrashPlan.from_environment()
        acquired = acquire(
            planned, client, crash, short_deadline(), is_forced=take_over, skips_foreign=True
        )
        topics = client.topics([planned.names.ledger], short_deadline())
        view = Snapshot(
            planned,
            client,
            source,
            acquired.ledger,
            acquired.last,
            readable(planned),
            ledger_id=topics[planned.names.ledger].topic_id,
        )
        with still_ours(acquired.coordinator, acquired.ledger):
            change = change_of(verb, view)
        if change.after is None:
            _rename(planned, change)
            return AppliedChange(change)
        _restore(change, crash)
        batches = acquired.batches(view.position, source, bus)
        with closing(batches.group):
            batches.note("recovery", change.after, change.note(reason))
        written = acquired.ledger.read_last(
            short_deadline()
        )  # waits for the commit's marker, so that the record is visible
        # Rename folders last. If the process dies before this, the ledger has the recovery record,
        # and the next run uses a fresh checkpoint anyway.
        _rename(planned, change)
        return AppliedChange(change, None if written is None else written.offset)


def _restore(change: LedgerChange, crash: CrashPlan) -> None:
    for restore in change.restores:
        crash.reached("tables:before")
        restore.apply()
        crash.reached("tables:after")


def _rename(planned: Plan, change: LedgerChange) -> None:
    files = readable(planned)
    if files is not None:
        for old, new in change.renames:
            try:
                files.rename(old, new)
            except OSError as error:
                raise UnavailableError(
                    "checkpoint_rename_failed",
                    f"{old} can't be renamed to {new} ({error.strerror or error})",
                    hint="the ledger is changed already: rename the folder by hand"
                    if change.after
                    else "the ledger was not changed: check this user's rights, then try again",
                    path=old,
                ) from error
