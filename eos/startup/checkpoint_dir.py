"""Choice of the checkpoint folder for a run, and removal of old folders.

On local disks a rename fails if the name exists, so two instances never write one file. In other
stores a rename may consist of a check, a copy and a delete (S3A). There this can happen:
1. An instance writes `offsets/N`. It pauses between the check and the copy.
2. Another instance fences it, and Spark writes its own `offsets/N` in the same folder.
3. The first instance resumes and overwrites that file, perhaps before the driver reads it.

So a run uses an existing folder in such a store only if the folder's last writer certainly writes
no more. Otherwise the run creates a folder whose name contains the producer id and the epoch of its
fence. Kafka grants each such pair once, so no other instance uses this folder. The fresh checkpoint
begins at the ledger's ends. If the pipeline keeps state, it begins with a copy (`state_copy`).
"""

from __future__ import annotations

from eos.checkpoint.files import Files
from eos.checkpoint.offset_log import Checkpoint, folders, listed, newest_with_offsets, numbered
from eos.errors import EosError, PromiseBrokenError, about
from eos.kafka.api import NO_IDENTITY, Identity
from eos.ledger.record import LedgerRecord, Position
from eos.observe import events
from eos.plan.plan import Plan
from eos.startup.checkpoint_age import is_cut_short, is_older
from eos.startup.ownership import is_ours
from eos.startup.resume_position import Emits
from eos.startup.stateful_pipeline import unreadable_state

KEPT = 2  # how many older folders are kept for inspection
REMOVED_MAX = 20  # most folders removed by one startup: a store may be slow


def choose_checkpoint(
    planned: Plan,
    files: Files,
    position: Position,
    last: LedgerRecord | None,
    identity: Identity = NO_IDENTITY,
    bus: Emits | None = None,
) -> str:
    """Return the path of the checkpoint to resume with, or of a fresh one that begins at the
    ledger's ends.

    - `last`: the ledger's last record.
    - `identity`: the producer id and epoch from the fence. In a remote store they name a fresh
      folder.
    - `bus`: gets a warning if a stateless pipeline replaces an older checkpoint.
    """
    root = planned.names.checkpoints
    current, fresh = newest_with_offsets(files, root)
    if last is None:
        _require_uncommitted(planned, files, current)
    if not files.is_local:
        fresh = own_folder(files, root, position.checkpoint, identity)
        current = _resumable(planned, files, position, last)
    if current is None or position.is_reset:
        return fresh
    checkpoint = Checkpoint(files, current, is_opaque=planned.is_dataframe)
    if checkpoint.planned() is None:
        return fresh
    why = _reason_to_replace(planned, checkpoint, position)
    if why and bus is not None:
        bus.emit(
            events.Warned(
                f"the checkpoint {current} {why}: the run uses a fresh one, {fresh}, which begins "
                "at the ledger's ends"
            )
        )
    return fresh if why else current


def _reason_to_replace(planned: Plan, checkpoint: Checkpoint, position: Position) -> str:
    """Return why a fresh checkpoint must replace this one; "" if this one can be used.

    Raise PromiseBrokenError if it is unreadable and a fresh one would lose or repeat records.
    """
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


def _resumable(
    planned: Plan, files: Files, position: Position, last: LedgerRecord | None
) -> str | None:
    """Return the path of the checkpoint to resume with in a remote store; None if there is none.

    A pipeline that keeps state resumes with a copy (`state_copy`). After a stop that interrupted
    Spark, the ledger names no folder. The stopped run has the newest one, except for copies by
    startups that died. A copy may lack plans: it counts once it has those that Spark reads.
    """
    root, name = planned.names.checkpoints, position.checkpoint
    keeps_state = planned.is_stateful or position.keeps_state
    if name:
        return f"{root}/{name}" if keeps_state or is_at_rest(planned, last) else None
    if not keeps_state or position.batch_id < 0:
        return None
    plans = {str(number) for number in (position.batch_id - 1, position.batch_id) if number >= 0}
    for each in reversed(folders(files, root)):
        path = f"{root}/{each}"
        is_whole = plans <= set(listed(files, f"{path}/offsets"))
        if is_whole and Checkpoint(files, path).query_id() == position.query_id:
            return path
    return None


def is_at_rest(planned: Plan, last: LedgerRecord | None) -> bool:
    """Return whether no process can still write into the checkpoint folder of the last record.

    A stop record of this deployment proves this: it names the folder only after the query ended
    without interruption. (Some threads of Spark run a little longer, but only delete obsolete
    files.)
    """
    return (
        last is not None
        and last.kind == "stop"
        and is_ours(planned, last)
        and bool(last.position.checkpoint)
    )


def remove_old(files: Files, location: str, bus: Emits) -> None:
    """Remove old checkpoint folders in a remote store: all but the two newest ones before
    `location`, at most 20 per startup. A failure is only warned about.

    Call this after this run's start record is in the ledger. From then on every startup uses a
    folder with a higher number, so only a fenced instance could still use a removed folder.
    """
    root, _, own = location.rpartition("/")
    if files.is_local:
        return  # old folders are rare on local disks, so they are kept
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
    # A commit in Spark's log proves an earlier run, so the ledger's records of that run are
    # missing.
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


def own_folder(files: Files, root: str, known: str, identity: Identity) -> str:
    """Return the path of a new folder, numbered above all existing folders and the one that the
    ledger names, which may be missing in the store."""
    names = [*folders(files, root), known]
    number = max(numbered(name) for name in names) + 1
    return f"{root}/{number:04d}-{identity.producer_id}-{identity.epoch}"
