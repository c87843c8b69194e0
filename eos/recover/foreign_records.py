"""How does `eos recover` handle ledger records that another producer wrote?

It skips these records, or accepts them as a copy of the pipeline's own ledger.
"""

from __future__ import annotations

from dataclasses import replace

from eos.errors import PromiseBrokenError, UsageError
from eos.inspect.layout import record_time
from eos.inspect.snapshot import Snapshot, bounds, short_deadline
from eos.ledger.decoder import decoded
from eos.ledger.record import LedgerRecord, Position
from eos.recover.change import LedgerChange, Verb, consequences, moves, no_change

_SHOWN_MAX = 5


def change_of(verb: Verb, view: Snapshot) -> LedgerChange:
    """Return the change of an option of `eos recover`.

    If another producer wrote the ledger's newest records, only `skip_foreign` and `accept_ledger`
    are allowed. For other options, raise PromiseBrokenError.
    """
    if view.foreign and verb not in {skip_foreign, accept_ledger}:
        raise view.foreign[0].error
    return verb(view)


def skip_foreign(view: Snapshot) -> LedgerChange:
    """Return the change of `--skip-foreign`: resume from the newest record that the pipeline itself
    wrote, and ignore other producers' records in the ledger from now on."""
    verb, before = "--skip-foreign", view.position
    for _ in view.ledger.newest_first(short_deadline()):
        pass  # the loop collects all foreign records, however old
    topic = view.ledger.partition.topic
    offsets = sorted(view.ledger.foreign, reverse=True)
    if not offsets:
        return no_change(verb, before, "the pipeline wrote every record of the ledger")
    if view.last is None:
        raise UsageError(
            "ledger_all_foreign",
            f"{view.name}: the pipeline wrote none of the ledger's records: other producers wrote "
            f"{_offsets_text(offsets)}",
            hint="if replication copied the ledger, use --accept-ledger. Otherwise delete the "
            f"topic {topic!r}; `eos recover {view.name}` then lists what is left to resume from",
        )
    reason = view.ledger.foreign[offsets[0]].error.message
    remarks = [
        f"skips {_offsets_text(offsets)} of the ledger: {reason}",
        f"the ends are those of the pipeline's own record at offset {view.last.offset}",
    ]
    group = view.group(before.ends)
    return LedgerChange(verb, before, before, group, remarks, foreign_until=offsets[0] + 1)


def accept_ledger(view: Snapshot) -> LedgerChange:
    """Return the change of `--accept-ledger`: resume from a record that replication copied.

    A replicated ledger lacks the transactions, so its records look like another producer's.
    """
    verb, before = "--accept-ledger", view.position
    if not view.foreign:
        return no_change(verb, before, "the pipeline wrote the newest record itself")
    stored = view.foreign[0].stored
    topic = view.ledger.partition.topic
    try:
        copied = decoded(view.name, topic, stored, is_trusted=True)
    except PromiseBrokenError as error:
        if error.code == "ledger_newer":
            raise
        raise UsageError(
            "copied_record_invalid",
            f"{error.message}. No ledger of this pipeline has such a record, so it is no copy",
            hint=f"`eos recover {view.name} --skip-foreign` resumes from the newest record that "
            "the pipeline wrote",
        ) from error
    after = _translate(view, copied)
    note = f"of {record_time(copied)}, by deployment {copied.owner['deployment']!r}"
    remarks = [
        f"accepts the record at offset {copied.offset}, {note}: no transaction proves who wrote it",
        *_topics(copied.position, after),
        *consequences(view, moves(before.ends, after.ends)),
    ]
    if copied.position.tables:
        tables = ", ".join(copied.position.tables)
        lost = f"drops the states of the tables {tables}"
        remarks.append(f"{lost}: the next run accepts each as it is")
    group = view.group(after.ends)
    return LedgerChange(verb, before, after, group, remarks, foreign_until=copied.offset + 1)


def _translate(view: Snapshot, copied: LedgerRecord) -> Position:
    """Return the copied record's position, changed to fit this cluster.

    Topics get the ids that they have here. States of Delta tables are dropped, because they refer
    to offsets of the original ledger. Raise UsageError if the source lacks one of the offsets: then
    replication did not keep offsets.
    """
    ends = copied.position.ends
    ids = view.source.topic_ids(copied.position.topic_ids)
    limits = bounds(view.source, ends)
    for tp, end in limits.outside(ends).items():
        raise UsageError(
            "copied_offsets_out_of_range",
            f"{view.name}: the copied record at offset {copied.offset} ends at offset {end} of "
            f"{tp.topic}-{tp.partition}, which has {limits.earliest[tp]} to {limits.latest[tp]}",
            hint="replication did not keep the source's offsets, so this ledger is not valid "
            "here. Translate the group's offsets with the replication tool, delete the ledger "
            f"topic, and use `eos recover {view.name} --from-group`",
            outside=str(tp),
        )
    return replace(copied.position, topic_ids=ids, is_reset=True, tables={})


def _topics(before: Position, after: Position) -> list[str]:
    return [
        f"{name}: topic id {now} here, {before.topic_ids[name]} in that record. Its offsets are "
        "kept as they are, which is right only if replication kept them (MirrorMaker does not)"
        for name, now in sorted(after.topic_ids.items())
        if now != before.topic_ids[name]
    ]


def _offsets_text(offsets: list[int]) -> str:
    more = f" and {len(offsets) - _SHOWN_MAX} or more" if len(offsets) > _SHOWN_MAX else ""
    plural = "s" if len(offsets) > 1 else ""
    return f"the record{plural} at offset{plural} {', '.join(map(str, offsets[:_SHOWN_MAX]))}{more}"
