"""How does `eos recover` adopt a Spark checkpoint's position, or set a checkpoint aside?"""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from eos.checkpoint.files import files_for
from eos.checkpoint.offset_log import Checkpoint, folders
from eos.errors import PromiseBrokenError, UsageError
from eos.inspect.snapshot import Snapshot, bounds, names_of
from eos.ledger.record import Ends
from eos.location import resolved
from eos.recover.change import LedgerChange, Verb, consequences, moves, no_change


def adopt(path: str | None) -> Verb:
    """Return the action of `eos recover --adopt-checkpoint`.

    It moves the ledger's position to the end of a checkpoint's last committed micro-batch. It is
    for a ledger that was lost, or for a query that ran with plain Spark before.
    """

    def verb(view: Snapshot) -> LedgerChange:
        before = view.position
        checkpoint, is_own = _checkpoint(view, path)
        options = f"--adopt-checkpoint {shlex.quote(checkpoint.location)}"
        if view.last is not None:
            view.require_same_topics()
        try:
            found, remarks = _last(view, checkpoint, is_own=is_own)
        except PromiseBrokenError as error:
            raise UsageError(
                "checkpoint_not_adoptable",
                f"{view.name}: {checkpoint.location} can't be adopted: {error.message}",
                hint="only a checkpoint of exactly one Kafka source can be adopted",
                path=checkpoint.location,
            ) from error
        accepted = _in_source(view, found, checkpoint)
        remarks += _unread_partitions(view, found, accepted, checkpoint)
        remarks += _require_readable(view, accepted)
        ends = {**before.ends, **accepted}
        moved = moves(before.ends, ends)
        if not moved:
            return no_change(options, before, "the ledger ends where the checkpoint does")
        remarks += consequences(view, moved)
        return LedgerChange(options, before, view.moved(ends), view.group(ends), remarks)

    return verb


def _checkpoint(view: Snapshot, path: str | None) -> tuple[Checkpoint, bool]:
    """Return the checkpoint in folder `path`, and whether this pipeline wrote it.

    Without `path`, it is the pipeline's newest checkpoint."""
    root = view.planned.names.checkpoints
    if path is None:
        if view.files is None:
            raise UsageError(
                "checkpoint_not_local",
                f"{view.name}: the checkpoints are in {root}, which only a running Spark can read",
                hint="copy the newest one to a local folder, then use "
                f"`eos recover {view.name} --adopt-checkpoint FOLDER`",
            )
        newest = view.newest()
        if newest is None:
            raise UsageError(
                "checkpoint_missing",
                f"{view.name}: {root} has no checkpoint with a planned micro-batch",
                hint="name the folder of a checkpoint: "
                f"`eos recover {view.name} --adopt-checkpoint FOLDER`",
            )
        return newest, True
    location = resolved(path, Path.cwd())
    files = files_for(location, conf=view.planned.spark_conf)
    checkpoint = Checkpoint(files, location)
    if checkpoint.planned() is None:
        raise UsageError(
            "not_a_checkpoint",
            f"{location} is no checkpoint with a planned micro-batch",
            hint="name the folder that contains `metadata`, `offsets` and `commits`",
            path=location,
        )
    return checkpoint, location.rpartition("/")[0] == root


def _last(view: Snapshot, checkpoint: Checkpoint, *, is_own: bool) -> tuple[Ends, list[str]]:
    """Return the end offsets of the last micro-batch that is certainly committed, and sentences
    that explain this.

    A micro-batch that was planned later may be committed, too: Spark writes its commit log last.
    Then the group's offsets decide, if this pipeline wrote the checkpoint.
    """
    planned, committed = checkpoint.planned(), checkpoint.committed()
    assert planned is not None
    if committed is not None and committed >= planned:
        ends = checkpoint.ends(committed)
        return ends, [f"the last micro-batch, {committed}, is committed and ends there"]
    open_end = checkpoint.ends(planned)
    if committed is None:
        certain = checkpoint.ranges(planned).starts
        first = f"micro-batch {planned} is planned and begins there; Spark committed none"
    else:
        certain = checkpoint.ends(committed)
        first = f"micro-batch {committed} is the last one that Spark committed, and ends there"
    if not is_own:
        second = (
            "may be written in part: it is read again, and that part is written a second time, as "
            "plain Spark would do"
        )
    else:
        group = view.group(open_end)
        if group is not None and group == dict(open_end):
            proof = (
                "is not in Spark's commit log, but the group's offsets are its ends. They were "
                "committed in one transaction with its output: it is committed, and ends there"
            )
            return open_end, [f"micro-batch {planned} {proof}"]
        is_before = group is not None and all(group.get(tp) == end for tp, end in certain.items())
        second = (
            "was planned, but not committed: the group's offsets are where it begins"
            if certain and is_before
            else "was planned, and the group's offsets do not show whether it is committed: if it "
            "is, its output is written a second time"
        )
    return certain, [first, f"micro-batch {planned} {second}"]


def _in_source(view: Snapshot, found: Ends, checkpoint: Checkpoint) -> Ends:
    here = view.partitions()
    accepted = {tp: end for tp, end in found.items() if tp in here}
    if not accepted:
        topics = ", ".join(sorted({tp.topic for tp in found})) or "nothing"
        raise UsageError(
            "checkpoint_other_topics",
            f"{view.name}: the checkpoint {checkpoint.location} reads {topics}, which the "
            "pipeline does not read",
            hint="is it the right checkpoint, and does the profile name its cluster?",
        )
    return accepted


def _unread_partitions(
    view: Snapshot, found: Ends, accepted: Ends, checkpoint: Checkpoint
) -> list[str]:
    """Return sentences about partitions that only the checkpoint or only the pipeline has."""
    remarks = []
    if view.last is None:
        remarks.append(
            "a checkpoint has no topic ids: if a topic was recreated since, or this is another "
            "cluster, its offsets mean other records"
        )
    if found.keys() - accepted.keys():
        remarks.append(
            f"{names_of(found.keys() - accepted.keys())}: not in the source now; ignored"
        )
    new = view.partitions() - accepted.keys() - view.position.ends.keys()
    if new:
        remarks.append(f"{names_of(new)}: not in the checkpoint, so it is read from its beginning")
    if checkpoint.has_state():
        remarks.append("the query had state, which is not adopted")
    return remarks


def _require_readable(view: Snapshot, accepted: Ends) -> list[str]:
    limits = bounds(view.source, accepted)
    remarks = []
    for tp, offset in limits.outside(accepted).items():
        if offset > limits.latest[tp]:
            raise UsageError(
                "checkpoint_beyond_source",
                f"{view.name}: the checkpoint ends at offset {offset} of {tp.topic}-{tp.partition},"
                f" which ends at {limits.latest[tp]}",
                hint="is the checkpoint from another cluster, or was the topic recreated?",
            )
        remarks.append(
            f"{tp} begins at {limits.earliest[tp]} by now: the next run stops "
            "(truncated) until --accept-start"
        )
    return remarks


def set_aside(view: Snapshot) -> LedgerChange:
    """Return the change after which the next run creates a fresh checkpoint.

    The recovery record in the ledger is enough for that, also without a checkpoint. The folder is
    renamed to show operators that it is unused. If the ledger is empty, no record is written, and
    only the rename counts.
    """
    verb, before = "--set-checkpoint-aside", view.position
    renames = _renames(view)
    is_done = view.files is not None and view.last is not None and view.last.kind == "recovery"
    if not renames and (is_done or view.last is None):
        return no_change(verb, before, "there is no checkpoint that a run would resume with")
    if view.last is None:
        consequence = (
            "the ledger is empty: the next run begins at the pipeline file's `start:`, and output "
            "that was written before is written a second time"
        )
        return LedgerChange(verb, before, remarks=[consequence], renames=renames)
    view.require_same_topics()
    after = replace(before, is_reset=True)
    remarks = []
    if view.files is None:
        remarks.append(
            f"{view.planned.names.checkpoints} can only be read by a running Spark: the folder is "
            "not renamed, but the next run uses a fresh one anyway"
        )
    if before.keeps_state:
        remarks.append(
            "the transforms keep state in that checkpoint: the next run stops (state_lost) without "
            "--accept-state-loss, and with it every total restarts from zero"
        )
    return LedgerChange(verb, before, after, view.group(before.ends), remarks, renames=renames)


def _renames(view: Snapshot) -> list[tuple[str, str]]:
    """Return old and new path of each checkpoint folder to rename.

    It is the newest checkpoint. If the ledger is empty, it is all of them, because a startup would
    resume from the next older one.
    """
    if view.files is None:
        return []
    root = view.planned.names.checkpoints
    time = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    found = [
        (f"{root}/{name}", f"{root}/aside-{name}-{time}")
        for name in folders(view.files, root)
        if Checkpoint(view.files, f"{root}/{name}").planned() is not None
    ]
    return found[-1:] if view.last is not None else found
