"""Which checkpoint folder a run lets Spark plan in, and which old ones it removes.

On local disks a rename fails if the name exists, so two instances never write one file. In other
stores a rename may be a look, a copy and a delete (S3A). There this can happen:
1. An instance is about to write `offsets/N`. It pauses between the look and the copy.
2. Another instance fences it, and Spark writes its own `offsets/N` in the same folder.
3. The first instance wakes and overwrites that file, perhaps before we read it.

So a run resumes with such a folder only if its last writer certainly writes no more. Otherwise it
creates a folder whose name contains the producer id and the epoch of its own fence. Kafka grants
that pair once, so a fenced instance can't know the name. The ledger knows where to resume.
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

KEPT = 2  # older folders that are kept for inspection
REMOVED_MAX = 20  # limit of one startup, because a store's client may be slow


def choose_checkpoint(
    planned: Plan,
    files: Files,
    position: Position,
    last: LedgerRecord | None,
    identity: Identity = NO_IDENTITY,
    bus: Emits | None = None,
) -> str:
    """Return the checkpoint to resume with, or a fresh one that begins at the ledger's ends.

    - `last`: the ledger's last record.
    - `identity`: the identity from the fence. In a remote root it names a fresh folder.
    - `bus`: gets a warning if a stateless pipeline leaves an older checkpoint.
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
                f"the checkpoint {current} {why}: the run uses a fresh one, {fresh}, which begins "
                "at the ledger's ends"
            )
        )
    return fresh if why else current


def _replaced(planned: Plan, checkpoint: Checkpoint, position: Position) -> str:
    """Return why a fresh checkpoint replaces this one without loss or repetition; empty if none
    does."""
    keeps_state = planned.is_stateful or position.keeps_state or checkpoint.has_state()
    try:
        checkpoint.require_readable()
    except PromiseBrokenError as error:
        if planned.is_stateful or position.keeps_state:
            raise unreadable_state(planned, checkpoint.location, position, error) from error
        if not keeps_state and is_cut_short(checkpoint, position):
            return "has empty files, as after a power cut; the ledger has all that it committed"
        raise about(planned.names.pipeline, error) from error
    if keeps_state or not is_older(planned, checkpoint, position):
        return ""
    return "is older than the ledger"


def is_at_rest(planned: Plan, last: LedgerRecord | None) -> bool:
    """Return whether nobody can write any more into the folder in the ledger's last record.

    This deployment's own stop record proves it: it names the folder only after the query ended
    without interruption. (Some threads of Spark live a little longer, and only delete obsolete
    files.)
    """
    return (
        last is not None
        and last.kind == "stop"
        and is_ours(planned, last)
        and bool(last.position.checkpoint)
    )


def remove_old(files: Files, location: str, bus: Emits) -> None:
    """Remove old folders in a remote store, which unclean ends leave.

    Call this once the ledger has our start record. Then every later startup uses a higher number,
    so only a fenced instance can still use a removed folder, however late the removal takes effect.
    """
    root, _, own = location.rpartition("/")
    if files.is_local:
        return  # few: each old one was lost, or set aside by an operator
    try:
        older = [name for name in folders(files, root) if numbered(name) < numbered(own)]
        for name in older[:-KEPT][:REMOVED_MAX]:
            files.remove(f"{root}/{name}")
    except (OSError, EosError) as error:
        reason = error.message if isinstance(error, EosError) else str(error)
        bus.emit(
            events.Warned(
                f"old checkpoints in {root} can't be deleted; the next run retries: {reason}"
            )
        )


def _require_uncommitted(planned: Plan, files: Files, current: str | None) -> None:
    # Only commits with offsets count. Spark also commits empty micro-batches, which are not in the
    # ledger.
    if current is None or not Checkpoint(files, current).has_commits():
        return
    name = planned.names.pipeline
    raise PromiseBrokenError(
        "ledger_empty",
        f"{name}: the checkpoint {current} has committed micro-batches, but the ledger "
        f"{planned.names.ledger!r} has none",
        hint="was the ledger topic deleted, does the profile name another cluster, or did plain "
        f"Spark write the checkpoint? On the right cluster, `eos recover {name} "
        "--adopt-checkpoint` resumes where the checkpoint ends",
        pipeline=name,
    )


def _of_own(files: Files, root: str, known: str, identity: Identity) -> str:
    """Return a name above all existing folders and above the one in the ledger. That one may be
    empty so far, or removed."""
    names = [*folders(files, root), known]
    number = max(numbered(name) for name in names) + 1
    return f"{root}/{number:04d}-{identity.producer_id}-{identity.epoch}"
