"""How does `eos recover --rewind-to` return to the position of an earlier ledger record?

Source records after that position are read again, and their output is written a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from eos.errors import UsageError
from eos.inspect.layout import record_time
from eos.inspect.snapshot import Snapshot, bounds, names_of, short_deadline
from eos.ledger.record import BATCH_QUERY, Ends, LedgerRecord, Position, TableState
from eos.recover.change import LedgerChange, Verb, consequences, moves, no_change
from eos.recover.dedup_states import states_of

if TYPE_CHECKING:
    from eos.delta.restore import TableRestore


def rewind(to: str, *, restores_tables: bool = False) -> Verb:
    """Return the action of `eos recover --rewind-to`.

    `to` is the offset of a ledger record, or a time: then the last record up to it is used. With
    `restores_tables`, each Delta table is restored to its version at that position."""

    def verb(view: Snapshot) -> LedgerChange:
        before = view.position
        _require_known_offsets(view)
        record, following = _record(view, to)
        options = f"--rewind-to {record.offset}" + (" --restore-tables" if restores_tables else "")
        view.require_same_topics()
        then, unchanged, remarks = _reachable(view, record)
        _require_in_source(view, record, then)
        producers = states_of(view, record)
        required = {**then, **unchanged}
        tables = _tables(view, record, following)
        restores: Sequence[TableRestore] = ()
        if restores_tables:
            from eos.recover.table_restores import plan_restores  # loads Delta's library

            restores = plan_restores(view, tables)
        states = {**before.tables, **{each.table.name: each.state for each in restores}}
        is_restored = all(each.is_done for each in restores) and states == before.tables
        runs = record.position.runs
        if required == before.ends and runs == before.runs and is_restored:
            return no_change(options, before, "the ledger is at that position")
        after = replace(
            view.moved(required),
            query_id=record.position.query_id,
            batch_id=record.position.batch_id,
            producers=producers,
            runs=runs,
            tables=states,
        )
        remarks = [
            f"to the record of {record_time(record)}",
            *consequences(view, moves(before.ends, required), tables, restores=restores_tables),
            *remarks,
            *_unknown_then(before, after),
        ]
        group = view.group(required)
        return LedgerChange(options, before, after, group, remarks, restores=restores)

    return verb


def _unknown_then(before: Position, after: Position) -> list[str]:
    """Return sentences about partitions and runs that the position `after` does not know yet."""
    found = []
    new = before.ends.keys() - after.ends.keys()
    if new:
        found.append(
            f"{names_of(new)}: not in that record, so it is read from its beginning, and its "
            "output is written a second time"
        )
    undone = [each for each in before.runs if each not in after.runs]
    if undone:
        found.append(f"if these runs are repeated, they write again: {', '.join(undone)}")
    return found


def _require_known_offsets(view: Snapshot) -> None:
    """Raise UsageError if only Spark's checkpoint knows the offsets of the source."""
    if view.planned.is_dataframe and view.position.query_id not in ("", BATCH_QUERY):
        raise UsageError(
            "rewind_without_offsets",
            f"{view.name}: --rewind-to can't move the position of a streaming DataFrame: only "
            "Spark's checkpoint knows its offsets",
            hint="give the job a new name, and let its source start where it has to be read again",
        )


def _tables(
    view: Snapshot, record: LedgerRecord, following: LedgerRecord | None
) -> dict[str, TableState]:
    """Return the state of each Delta table that had exactly the rows up to the record.

    An attempt's record has the states from before its rows, so the following record has them. If
    the pipeline died in between, that record may be one that a table lacked the rows of. A recovery
    record may have the states at an older position, to which it restored the tables. A table that
    was recreated since has other versions.
    """
    if following is None or following.kind == "recovery":
        following = record
    attempt = view.newest_attempt(record.offset)
    least = -1 if attempt is None else attempt.offset
    now = view.position.tables
    return {
        name: then
        for name, then in following.position.tables.items()
        if then.version is not None and then.at >= least and name in now and now[name].id == then.id
    }


def _record(view: Snapshot, to: str) -> tuple[LedgerRecord, LedgerRecord | None]:
    """Return the record to rewind to, and the one after it."""
    offset, time_ms = _parse_target(to)
    nearest: LedgerRecord | None = None
    for record in view.ledger.newest_first(short_deadline()) if view.last else ():
        if offset is None:
            is_found, is_past = record.at_ms <= time_ms, False
        else:
            is_found, is_past = record.offset == offset, record.offset < offset
        if is_found:
            return record, nearest
        if is_past:
            following = f"; the next is {nearest.offset}" if nearest else ""
            raise UsageError(
                "ledger_offset_missing",
                f"{view.name}: the ledger has no committed record at offset {offset}, which "
                f"`--rewind-to` names; the one before is {record.offset}{following}",
                hint=f"`eos recover {view.name}` lists the last records",
            )
        nearest = record
    first = (
        f"its first record is {nearest.offset}, of {record_time(nearest)}"
        if nearest
        else "it is empty"
    )
    raise UsageError(
        "rewind_before_ledger",
        f"{view.name}: the ledger has no record that old: {first}",
        hint=f"`eos recover {view.name}` lists the last records",
    )


def _parse_target(to: str) -> tuple[int | None, int]:
    """Parse `to` as a ledger offset or a time. Return the offset and 0, or None and the time in
    milliseconds."""
    if to.isascii() and to.isdigit():
        return int(to), 0
    try:
        time = datetime.fromisoformat(to.strip().replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError as error:
        raise UsageError(
            "rewind_target_invalid",
            f"--rewind-to {to!r} is neither an offset of the ledger nor a time",
            hint="write a time as 2026-01-31T18:00:00Z; without a zone it is UTC",
        ) from error
    if time.tzinfo is None:
        time = time.replace(tzinfo=timezone.utc)
    return None, round(time.timestamp() * 1000)


def _reachable(view: Snapshot, record: LedgerRecord) -> tuple[Ends, Ends, list[str]]:
    """Return the record's offsets that still apply, the current offsets to keep, and remarks.

    The record's offsets apply to topics that were not recreated since. Recreated topics keep their
    current offsets.
    """
    then, now = record.position, view.position
    same = {name for name, known in then.topic_ids.items() if now.topic_ids.get(name) == known}
    others = then.topic_ids.keys() - same
    unchanged = {tp: end for tp, end in now.ends.items() if tp.topic in others}
    remarks = [
        f"{name} was recreated since, and keeps its current ends"
        if name in now.topic_ids
        else f"{name} was removed from the ledger since, and is not added again"
        for name in sorted(others)
    ]
    return {tp: end for tp, end in then.ends.items() if tp.topic in same}, unchanged, remarks


def _require_in_source(view: Snapshot, record: LedgerRecord, required: Ends) -> None:
    limits = bounds(view.source, required)
    outside = limits.outside(required)
    if outside:
        tp, offset = next(iter(outside.items()))
        raise UsageError(
            "rewind_records_gone",
            f"{view.name}: record {record.offset} of the ledger is at offset {offset} of "
            f"{tp.topic}-{tp.partition}, which has {limits.earliest[tp]} to {limits.latest[tp]}: "
            "the source no longer has those records",
            hint=f"a later record may fit: `eos recover {view.name}` lists the last records",
            outside=names_of(outside),
        )
