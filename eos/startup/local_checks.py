"""Do this machine's files (checkpoint, Spark's state, dedup's states) fit the ledger's last record?

The files are checked twice: before the fence, against the last record at that time, and after it,
against the final last record. Because of the first check, an instance whose files don't fit the
ledger does not fence an instance that can run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eos.checkpoint.files import Files
from eos.checkpoint.offset_log import Checkpoint
from eos.errors import PromiseBrokenError
from eos.kafka.api import NO_IDENTITY, Identity
from eos.ledger.record import LedgerRecord, Position
from eos.observe import events
from eos.plan.plan import Plan
from eos.startup.checkpoint_age import require_level
from eos.startup.checkpoint_dir import choose_checkpoint
from eos.startup.resume_position import Emits, inherited
from eos.startup.stateful_pipeline import require_state, without_state

if TYPE_CHECKING:
    from eos.spark.dedup_run import DedupRun


@dataclass(frozen=True, slots=True)
class ChosenCheckpoint:
    """The checkpoint to use, the position to resume from with it, and a note for the ledger's start
    record."""

    location: str
    position: Position
    note: Mapping[str, Any] | None = None


def require_local(
    planned: Plan,
    files: Files,
    dedup: DedupRun | None,
    last: LedgerRecord | None,
    *,
    accepts: bool,
) -> None:
    """Raise PromiseBrokenError if this machine's files don't fit the ledger record `last`, so that
    a run could not resume. Change nothing.

    If the ledger is empty, nothing is checked: no instance has run yet.
    """
    if last is None:
        return
    position = inherited(planned, last)
    choose(planned, files, position, last, accepts=accepts)
    if dedup is not None:
        dedup.require(position)


def choose(
    planned: Plan,
    files: Files,
    before: Position,
    last: LedgerRecord | None,
    identity: Identity = NO_IDENTITY,
    bus: Emits | None = None,
    *,
    accepts: bool,
) -> ChosenCheckpoint:
    """Return the checkpoint to resume with.

    If the checkpoint lacks the state of the transforms and an operator accepts that loss
    (`accepts`), return a fresh checkpoint instead.
    """
    accepts = accepts and not planned.is_dataframe  # it would read its source again from the start
    try:
        location = choose_checkpoint(planned, files, before, last, identity, bus)
        if not require_state(planned, files, location, before, accepts_loss=accepts):
            if not before.is_reset:
                checkpoint = Checkpoint(files, location, is_opaque=planned.is_dataframe)
                require_level(planned, checkpoint, before)
            return ChosenCheckpoint(location, before)
    except PromiseBrokenError as error:
        if not accepts or error.code != "state_lost":
            raise
        location = str(error.fields["checkpoint"])
    position = without_state(before)
    lost = {"query_id": before.query_id, "batch_id": before.batch_id, "checkpoint": location}
    location = choose_checkpoint(planned, files, position, last, identity)
    if bus is not None:
        bus.emit(
            events.Warned(
                "the state is dropped, as --accept-state-loss allows: totals restart from zero"
            )
        )
    return ChosenCheckpoint(location, position, {"accepted": "state loss", **lost})
