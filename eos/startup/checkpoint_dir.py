"""Which checkpoint folder a start lets Spark plan in, and which old ones it removes.

On local disks a rename refuses a name that is taken, so two copies never write one file. Elsewhere
it may be a look, a copy and a delete (S3A): a copy that was fenced while it stood still between the
look and the copy overwrites `offsets/N` when it wakes, perhaps between Spark's writing of it and
our reading. So a folder there is gone on with only if its last writer certainly writes no more.
Else a start takes one whose name has the producer id and the epoch of its own fence, which Kafka
gives once: whoever was fenced before can't know it. The ledger knows where to go on.
"""

from __future__ import annotations

from eos.checkpoint.files import Files
from eos.checkpoint.offset_log import Checkpoint, folders, newest_with_offsets, numbered
from eos.errors import EosError, PromiseBrokenError, about
from eos.kafka.api import NO_IDENTITY, Identity
from eos.ledger.record import LedgerRecord, Position
from eos.observe import events
from eos.plan.plan import Plan
from eos.startup.checkpoint_age import is_cut_short, is_older
from eos.startup.ownership import is_ours
from eos.startup.resume_position import Emits
from eos.startup.stateful_pipeline import unreadable_state

KEPT = 2  # older folders, for people to look into
REMOVED_MAX = 20  # at one start: a store's client may take its time


def choose_checkpoint(
    planned: Plan,
    files: Files,
    position: Position,
    last: LedgerRecord | None,
    identity: Identity = NO_IDENTITY,
    bus: Emits | None = None,
) -> str:
    """Return the checkpoint to resume with, or a fresh one that begins at the ledger's ends.

    `last`: the ledger's last record; `identity`: from the fence, which names a fresh folder in a
    remote root; `bus`: hears why a stateless pipeline leaves a checkpoint that is older.
    """
    root = planned.names.checkpoints
    current, fresh = newest_with_offsets(files, root)
    if last is None:
        _require_uncommitted(planned, files, current)
    if not files.is_local:
        fresh = _of_own(files, root, position.checkpoint, identity)
        current = f"{root}/{position.checkpoint}" if is_at_rest(planned, last) else None
    if current is None or position.is_reset:
        return fresh
    checkpoint = Checkpoint(files, current)
    if checkpoint.planned() is None:
        return fresh
    why = _replaced(planned, checkpoint, position)
    if why and bus is not None:
        bus.emit(
            events.Warned(
                f"the checkpoint {current} {why}: the fresh one {fresh} begins at the ledger's ends"
            )
        )
    return fresh if why else current


def _replaced(planned: Plan, checkpoint: Checkpoint, position: Position) -> str:
    """Why a fresh checkpoint replaces this one without loss or repetition; empty: none does."""
    keeps_state = planned.is_stateful or position.keeps_state or checkpoint.has_state()
    try:
        checkpoint.require_readable()
    except PromiseBrokenError as error:
        if planned.is_stateful or position.keeps_state:
            raise unreadable_state(planned, checkpoint.location, position, error) from error
        if not keeps_state and is_cut_short(checkpoint, position):
            return "has empty files, as after a power cut, and the ledger has what it committed"
        raise about(planned.names.pipeline, error) from error
    if keeps_state or not is_older(planned, checkpoint, position):
        return ""
    return "is older than the ledger"


def is_at_rest(planned: Plan, last: LedgerRecord | None) -> bool:
    """Whether nobody can write any more into the folder that the ledger names: the copy that had it
    wrote so itself, after its query had ended without being interrupted. (Spark's threads that live
    a little longer only delete what is long obsolete.)"""
    return (
        last is not None
        and last.kind == "stop"
        and is_ours(planned, last)
        and bool(last.position.checkpoint)
    )


def remove_old(files: Files, location: str, bus: Emits) -> None:
    """Bounds what unclean ends leave in a remote store.

    To be called once the ledger has our start: then every later start takes a higher number, and
    what is removed here, however late, is nobody's but a fenced copy's.
    """
    root, _, own = location.rpartition("/")
    if files.is_local:
        return  # few: the one before was lost, or a person set it aside
    try:
        older = [name for name in folders(files, root) if numbered(name) < numbered(own)]
        for name in older[:-KEPT][:REMOVED_MAX]:
            files.remove(f"{root}/{name}")
    except (OSError, EosError) as error:
        told = error.message if isinstance(error, EosError) else str(error)
        bus.emit(events.Warned(f"old checkpoints in {root} are left for the next start: {told}"))


def _require_uncommitted(planned: Plan, files: Files, current: str | None) -> None:
    # Commits alone tell nothing: Spark notes empty micro-batches, which the ledger does not have.
    if current is None or not Checkpoint(files, current).has_commits():
        return
    name = planned.names.pipeline
    raise PromiseBrokenError(
        f"{name}: the checkpoint {current} has committed micro-batches, but the ledger "
        f"{planned.names.ledger!r} has none",
        hint="was the ledger topic deleted, is this another cluster, or a checkpoint of plain "
        f"Spark? `eos recover {name} --adopt-checkpoint` goes on where it ends",
        case="ledger_empty",
        pipeline=name,
    )


def _of_own(files: Files, root: str, known: str, identity: Identity) -> str:
    """Higher than all that are there, and than what the ledger names: that one may have nothing in
    it yet, or be removed."""
    names = [*folders(files, root), known]
    number = max(numbered(name) for name in names) + 1
    return f"{root}/{number:04d}-{identity.producer_id}-{identity.epoch}"
