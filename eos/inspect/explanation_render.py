"""How does `eos recover` render its comparison of positions as text and as JSON?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from eos.inspect.explanation import Explanation, PartitionRow
from eos.inspect.layout import columns, record_time
from eos.inspect.startup_stops import Command
from eos.ledger.record import LedgerRecord, Position, nested
from eos.startup.liveness import Liveness
from eos.startup.ownership import is_ours

_ROWS_MAX = 40
_TOPICS_MAX = 20
_HISTORY_SHOWN, _HISTORY_JSON = 10, 50
_COLUMNS = ("ledger", "group", "committed", "planned", "earliest", "latest")


def lines(found: Explanation, command: Command) -> Iterator[str]:
    """Yield lines with the positions, what agrees and differs, the next run, and fixes.

    `command` completes an `eos recover` command line with an option."""
    names = found.planned.names
    yield f"pipeline    {names.pipeline}, {_deployment(found)}"
    yield f"ledger      {names.ledger}: {_last_record(found)}"
    if found.runs is Liveness.YES:
        label = f" as process {found.runs_as} of this machine" if found.runs_as else ""
        yield f"            the pipeline runs now{label}"
    yield f"group       {names.group}{': hidden by an open transaction' * found.is_group_hidden}"
    yield f"checkpoint  {_checkpoint(found)}"
    tables = found.last.position.tables if found.last is not None else {}
    for name, known in tables.items():  # from the ledger: reading the table needs Spark
        version = "" if known.version is None else f", in version {known.version} of the table"
        yield f"table       {name}: up to record {known.at} when the last attempt began{version}"
    yield from _topics(found)
    yield ""
    yield from _table(found.rows)
    if found.history:
        yield ""
        yield "the ledger's last records, for --rewind-to"
        here = found.history[0].position
        yield from (_history_line(record, here) for record in found.history[:_HISTORY_SHOWN])
    yield ""
    yield from (f"agrees      {text}" for text in found.agrees)
    yield from (f"differs     {text}" for text in found.warnings)
    if found.is_moving:
        yield "moves       nothing was compared: the pipeline runs, and committed during each try"
    yield from _next_start(found, command)


def as_json(found: Explanation, command: Command) -> dict[str, Any]:
    names = found.planned.names
    return {
        "pipeline": names.pipeline,
        "deployment": found.planned.deployment,
        "ledger": {"topic": names.ledger, "last": found.last and _record(found.last)},
        "history": [_record(record) for record in found.history[:_HISTORY_JSON]],
        "group": {"name": names.group, "hidden": found.is_group_hidden},
        "checkpoint": {
            "root": names.checkpoints,
            "readable": found.is_readable,
            "newest": found.checkpoint
            and {
                name: getattr(found.checkpoint, name)
                for name in ("location", "query_id", "planned", "committed")
            },
        },
        "tables": {
            name: each.as_json()
            for name, each in (found.last.position.tables if found.last else {}).items()
        },
        "topics": {
            name: {"ledger": known, "now": now} for name, (known, now) in found.topic_ids.items()
        },
        "partitions": [
            {"topic": row.partition.topic, "partition": row.partition.partition, **_values(row)}
            for row in found.rows
        ],
        "agrees": list(found.agrees),
        "warnings": list(found.warnings),
        "runs_as": found.runs_as,
        "moving": found.is_moving,
        "goes_on": not found.stops,
        "next": found.next,
        "findings": [stop.as_json(command) for stop in found.stops],
    }


def _next_start(found: Explanation, command: Command) -> Iterator[str]:
    if found.runs is not Liveness.YES or found.is_moving:
        yield f"next start  {found.next}"
    else:
        yield f"next start  once the running pipeline has ended: {found.next}"
    for stop in found.stops:
        yield ""
        yield from (f"{error.code}: {error.message}" for error in stop.errors)
        if stop.hint:
            yield f"  {stop.hint}"
        for remedy in stop.remedies:
            yield f"  $ {command(remedy.words)}"
            yield f"      {remedy.effect}"
    if found.stops:
        yield ""
        yield "without --yes a command only shows its changes; docs/recovery.md explains each case"


def _deployment(found: Explanation) -> str:
    if found.planned.deployment:
        return f"deployment {found.planned.deployment!r}"
    return "a deployment without an id, which the first run here creates"


def _last_record(found: Explanation) -> str:
    last = found.last
    if last is None:
        is_foreign = any(each.code in {"ledger_foreign", "ledger_unknown"} for each in found.stops)
        return "no record that this pipeline wrote" if is_foreign else "empty"
    owner = last.owner
    is_this = is_ours(found.planned, last)
    owner_text = "this deployment" if is_this else repr(owner.get("deployment"))
    return (
        f"the last record is {_kind(last)}, at offset {last.offset}, {record_time(last)}, "
        f"by {owner_text} (host {owner.get('host')}, process {owner.get('process')})"
    )


def _kind(record: LedgerRecord) -> str:
    if record.kind == "attempt":
        return f"micro-batch {record.position.batch_id}"
    if record.kind == "recovery":
        note = record.note or {}
        reason = f" ({note['why']})" if note.get("why") else ""
        return f"a recovery: {note.get('verb', '')} by {note.get('by', 'unknown')}{reason}"
    return {"start": "a start", "refresh": "an idle refresh", "stop": "a clean stop"}[record.kind]


def _history_line(record: LedgerRecord, here: Position) -> str:
    back = sum(end - record.position.ends.get(tp, 0) for tp, end in here.ends.items())
    how_far = f"{back:,} offsets back" if back > 0 else "the same ends" if back == 0 else ""
    comma = ", " if how_far else ""
    return f"  {record.offset:>8}  {record_time(record)}  {_kind(record)}{comma}{how_far}"


def _checkpoint(found: Explanation) -> str:
    root = found.planned.names.checkpoints
    if not found.is_readable:
        label = found.last.position.checkpoint if found.last is not None else ""
        place = f"{root}/{label}" if label else f"in {root}"
        return f"{place}, which only a running Spark can read"
    if found.checkpoint is None:
        return f"none in {root}"
    newest, last = found.checkpoint, found.last
    is_same = last is not None and last.position.query_id == newest.query_id
    owner_text = " (the ledger's last)" if is_same else ""
    if last is not None and last.position.is_reset:
        owner_text = " (not resumed: the ledger's position was changed since)"
    return (
        f"{newest.location}: query {newest.query_id}{owner_text}, last micro-batch planned "
        f"{_or_none(newest.planned)}, committed {_or_none(newest.committed)}"
    )


def _topics(found: Explanation) -> Iterator[str]:
    """Yield a line for each source topic, with its topic id in the ledger and its current one.

    Topics whose ids differ come first. They were recreated, deleted or added.
    """
    ordered = sorted(found.topic_ids.items(), key=lambda item: item[1][0] == item[1][1])
    for name, (known, now) in ordered[:_TOPICS_MAX]:
        yield f"topic       {name}: {_ids(known, now)}"
    if len(ordered) > _TOPICS_MAX:
        yield f"            and {len(ordered) - _TOPICS_MAX} more (--json has all)"


def _ids(known: str | None, now: str | None) -> str:
    if known == now:
        return f"id {now}, as in the ledger"
    if now is None:
        return f"does not exist; id {known} in the ledger"
    if known is None:
        return f"id {now}, new to the ledger"
    return f"id {now}, but {known} in the ledger"


def _table(rows: Sequence[PartitionRow]) -> Iterator[str]:
    """Yield the table of source partitions, with the offsets of ledger, group and checkpoint.

    Partitions whose offsets differ come first.
    """
    if not rows:
        return
    ordered = sorted(rows, key=_is_plain)
    lines = [
        (str(row.partition), *map(_or_none, _values(row).values())) for row in ordered[:_ROWS_MAX]
    ]
    yield from columns([("partition", *_COLUMNS), *lines], left=1)
    if len(rows) > _ROWS_MAX:
        yield f"and {len(rows) - _ROWS_MAX} more with fewer differences (--json has all)"


def _is_plain(row: PartitionRow) -> bool:
    return row.ledger == row.group == row.committed and row.planned is None


def _values(row: PartitionRow) -> dict[str, int | None]:
    return {name: getattr(row, name) for name in _COLUMNS}


def _or_none(value: int | None) -> str:
    return "-" if value is None else str(value)


def _record(record: LedgerRecord) -> dict[str, Any]:
    position = record.position
    return {
        "offset": record.offset,
        "kind": record.kind,
        "at": record_time(record),
        "owner": dict(record.owner),
        "query_id": position.query_id,
        "batch_id": position.batch_id,
        "is_reset": position.is_reset,
        "checkpoint": position.checkpoint,
        "ends": nested(position.ends),
        "note": None if record.note is None else dict(record.note),
    }
