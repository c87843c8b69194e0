"""Does what a verb says: the lock, the look, the fence, and one record of kind "recovery".

The order is that of a start, so nothing that a start leaves alone is disturbed. What is refused is
refused before the fence: the change is planned once without and once with it, and what the second
one says is done.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass

from eos.errors import UnavailableError
from eos.faults import CrashPlan
from eos.inspect.snapshot import Snapshot, look, readable, soon
from eos.kafka.client import KafkaClient
from eos.observe.bus import Bus
from eos.observe.console import Console
from eos.plan.plan import Plan
from eos.recover.change import LedgerChange, Verb
from eos.recover.foreign_records import change_of
from eos.startup.acquire import acquire, still_ours
from eos.startup.deployment import identified
from eos.startup.ownership import RunLock, require_free
from eos.startup.resume_position import require_no_members
from eos.startup.source_state import LiveSource


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """`offset`: of the record in the ledger, if there is one."""

    change: LedgerChange
    offset: int | None = None


def propose(planned: Plan, wire: KafkaClient, verb: Verb, *, take_over: bool) -> LedgerChange:
    """What the verb would do, or why it is refused. Disturbs nobody."""
    view = look(planned, wire, skips_foreign=True)
    require_free(view.planned, view.last, is_forced=take_over)
    return change_of(verb, view)


def act(
    planned: Plan, wire: KafkaClient, verb: Verb, *, why: str, take_over: bool
) -> AppliedChange:
    planned = identified(planned)
    lock = RunLock(planned)
    with closing(lock), closing(Bus()) as bus:
        lock.take(is_forced=take_over)
        bus.subscribe(Console())
        wire.agree_on_profile(soon())
        # What an open transaction hides is seen after the fence, which ends it.
        with suppress(UnavailableError):
            change = propose(planned, wire, verb, take_over=take_over)
            if change.after is None:
                _rename(planned, change)
                return AppliedChange(change)
        source = LiveSource(planned, wire)
        require_no_members(planned, source, soon())
        crash = CrashPlan.from_environment()
        taken = acquire(planned, wire, crash, soon(), is_forced=take_over, skips_foreign=True)
        view = Snapshot(planned, source, taken.ledger, taken.last, readable(planned))
        with still_ours(taken.coordinator, taken.ledger):
            change = change_of(verb, view)
        if change.after is None:
            _rename(planned, change)
            return AppliedChange(change)
        batches = taken.batches(view.position, source, bus)
        batches.note("recovery", change.after, change.note(why))
        written = taken.ledger.read_last(soon())  # a look could come before the commit's marker
        # Last: whoever dies before it has the note, and a start takes a fresh one all the same.
        _rename(planned, change)
        return AppliedChange(change, None if written is None else written.offset)


def _rename(planned: Plan, change: LedgerChange) -> None:
    files = readable(planned)
    if files is not None:
        for old, new in change.renames:
            try:
                files.rename(old, new)
            except OSError as error:
                raise UnavailableError(
                    f"{old} can't be renamed to {new} ({error.strerror or error})",
                    hint="all else is done: rename it by hand" if change.after else "",
                    path=old,
                ) from error
