"""How does `eos recover` resolve a difference between group offsets and the ledger's position?

Every attempt commits both in one transaction. So they differ only if another client wrote the
group's offsets, if these expired, or if the ledger was lost. An operator decides which one counts.
"""

from __future__ import annotations

from eos.errors import UnavailableError, UsageError
from eos.inspect.snapshot import Snapshot, bounds, names_of, short_deadline
from eos.ledger import group_offsets
from eos.ledger.record import Ends
from eos.recover.change import LedgerChange, consequences, moves, no_change


def from_group(view: Snapshot) -> LedgerChange:
    """Return the change of `--from-group`: the ledger's position becomes the group's offsets.

    Partitions without a group offset keep the ledger's offset."""
    verb, before = "--from-group", view.position
    _require_in_transaction(verb, view)
    view.require_same_topics()
    here = view.partitions()
    every = _every_offset(view)
    found = {tp: offset for tp, offset in every.items() if tp in here or tp in before.ends}
    if not found:
        raise UsageError(
            "group_without_offsets",
            f"{view.name}: --from-group can't resume from the pipeline's group "
            f"{view.planned.names.group!r}: it has no offsets of the source's topics",
            hint="is this the right cluster? Offsets expire, and a group can be deleted; "
            f"`eos recover {view.name}` lists what else is left to resume from",
        )
    ends = {**before.ends, **found}
    moved = moves(before.ends, ends)
    _require_readable(view, {tp: found[tp] for tp in moved})
    if not moved:
        return no_change(verb, before, "the group's offsets are the ledger's ends")
    remarks = consequences(view, moved)
    unchanged, new = before.ends.keys() - found.keys(), here - ends.keys()
    if unchanged:
        remarks.append(
            f"{names_of(unchanged)}: the group has no offset, so the ledger's end is kept"
        )
    if new:
        remarks.append(f"{names_of(new)}: in neither of them, so it is read from its beginning")
    foreign = every.keys() - found.keys()
    if foreign:
        remarks.append(f"{names_of(foreign)}: in the group, but not in the source; ignored")
    return LedgerChange(verb, before, view.moved(ends), found, remarks)


def restore_group(view: Snapshot) -> LedgerChange:
    """Return the change of `--restore-group`: the group's offsets become the ledger's position.

    The ledger's position is unchanged, so the next run keeps its checkpoint.
    """
    verb, before = "--restore-group", view.position
    _require_in_transaction(verb, view)
    if view.last is None:
        raise UsageError(
            "restore_from_empty_ledger",
            f"{view.name}: --restore-group can't set the offsets of group "
            f"{view.planned.names.group!r}: they are copied from the ledger, which is empty",
            hint=f"`eos recover {view.name}` lists what else is left to resume from",
        )
    view.require_same_topics()
    found = _visible(view, view.group(before.ends))
    if not group_offsets.differing(before.ends, found):
        return no_change(verb, before, "the group's offsets are the ledger's ends")
    return LedgerChange(verb, before, before, found)


def _require_in_transaction(verb: str, view: Snapshot) -> None:
    """Raise UsageError if the group's offsets are only mirrored after each commit: they may be
    older than the ledger, and records would be repeated."""
    other = view.planned.source_cluster
    if other is not None:
        raise UsageError(
            "group_is_mirror",
            f"{view.name}: {verb} needs group offsets that transactions commit. The source is on "
            f"the cluster {other.name!r}, where the group {view.planned.names.group!r} is only a "
            "copy of the ledger",
            hint="the next commit writes the copy again. To resume elsewhere, use `eos recover "
            f"{view.name} --rewind-to OFFSET`",
            cluster=other.name,
        )


def _every_offset(view: Snapshot) -> Ends:
    """Return all offsets of the group.

    The source's partitions are requested by name, too, because a request for all partitions leaves
    out offsets that an open transaction still has to commit.
    """
    known = view.partitions() | view.position.ends.keys()
    found = dict(_visible(view, view.group(known)))
    rest = view.client.committed_offsets(view.planned.names.group, short_deadline())
    return {**{tp: each.offset for tp, each in rest.items()}, **found}


def _visible(view: Snapshot, found: Ends | None) -> Ends:
    if found is None:
        raise UnavailableError(
            "group_offsets_hidden",
            f"{view.name}: the group's offsets can't be read while a transaction is open",
            hint="its instance died or still runs. The transaction's timeout ends it. So does the "
            "next run, and this command with --yes, because both fence first",
        )
    return found


def _require_readable(view: Snapshot, found: Ends) -> None:
    limits = bounds(view.source, found)
    outside = limits.outside(found)
    if outside:
        tp, offset = next(iter(outside.items()))
        raise UsageError(
            "group_offsets_out_of_range",
            f"{view.name}: the group is at offset {offset} of {tp.topic}-{tp.partition}, which has "
            f"{limits.earliest[tp]} to {limits.latest[tp]}: nothing can be read there",
            hint="set the group's offsets within the topic (`kafka-consumer-groups.sh "
            "--reset-offsets`), then retry",
            outside=names_of(outside),
        )
