"""Conversion of a ledger record to rows of the audit table `transactions`.

There is one row for each transaction and target partition; a transaction without a target has one
row. An aborted attempt is listed by the next ledger record, and its row has that record's offset.
Every value comes from the ledger, so the table can be rebuilt from it.

Columns are never removed. A release keeps columns that it does not know, and leaves them null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from eos.kafka.transaction_states import TransactionPhase
from eos.ledger.record import Ends, LedgerRecord, flat

SCHEMA_VERSION = 2  # 2: offsets_in, records_read
PARTITION = "pipeline"
_RANGE = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
    ]
)
_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("pipeline", pa.string()),
        ("ledger", pa.string()),  # the topic
        ("ledger_id", pa.string()),
        ("ledger_offset", pa.int64()),  # of the record that lists it
        ("kind", pa.string()),  # as in the ledger's records
        ("outcome", pa.string()),  # CompleteCommit or CompleteAbort
        ("query_id", pa.string()),
        ("batch_id", pa.int64()),
        ("attempt", pa.int32()),
        ("producer_id", pa.int64()),
        ("epoch", pa.int32()),
        ("error", pa.string()),  # code of the error that aborted it
        ("reason", pa.string()),  # the error's text, or a recovery's note as JSON
        ("begun_at", _TIME),
        ("ended_at", _TIME),
        ("deployment", pa.string()),
        ("host", pa.string()),
        ("process", pa.int64()),
        ("is_reset", pa.bool_()),  # position moved: ranges don't continue earlier ones
        ("sources", pa.list_(_RANGE)),  # offsets read; without an attempt, the whole position
        ("records_in", pa.int64()),  # offsets: the former name of `offsets_in`
        ("offsets_in", pa.int64()),
        ("records_read", pa.int64()),  # visible records; null if the ledger lacks it
        ("target_topic", pa.string()),
        ("target_partition", pa.int32()),
        ("records", pa.int64()),
        ("sequence_first", pa.int64()),
        ("sequence_last", pa.int64()),
        ("offset_first", pa.int64()),
        ("offset_last", pa.int64()),
        ("bytes", pa.int64()),
        ("digest", pa.int64()),
        ("refused", pa.string()),  # records by rule and reaction, as JSON; in one row
        ("dedup", pa.string()),  # dedup's results, as JSON; in one row
        ("schema_version", pa.int32()),
    ]
)
NAMES: Sequence[str] = tuple(SCHEMA.names)
_IN_ONE_ROW = ("refused", "dedup")
_TARGET = ("records", "sequence_first", "sequence_last", "offset_first", "offset_last", "bytes")

Row = dict[str, Any]


def table(rows: Iterable[Row]) -> pa.Table:
    found = list(rows)
    columns = [
        _sources(found)
        if name == "sources"
        else pa.array([row.get(name) for row in found], SCHEMA.field(name).type)
        for name in NAMES
    ]
    return pa.table(columns, schema=SCHEMA)


def _sources(found: Sequence[Row]) -> pa.Array:
    """Return the column `sources`: the source ranges of each row's transaction.

    All rows of an attempt share one list, which is converted to Arrow once. Otherwise an attempt
    with a hundred source and a hundred target partitions would convert ten thousand ranges.
    """
    places: dict[int, int] = {}
    lists: list[Any] = []
    for row in found:
        of_row = row.get("sources")
        if id(of_row) not in places:
            places[id(of_row)] = len(lists)
            lists.append(of_row)
    indices = pa.array([places[id(row.get("sources"))] for row in found], pa.int64())
    return pa.array(lists, SCHEMA.field("sources").type).take(indices)


def rows(
    pipeline: str, ledger: str, ledger_id: str, records: Iterable[LedgerRecord]
) -> Iterator[Row]:
    """Yield the rows of these ledger records, in their order."""
    for record in records:
        of_record = shared(pipeline, ledger, ledger_id, record)
        for failed in record.failed:
            yield aborted(of_record, failed)
        yield from _committed_rows(of_record, record)


def aborted(of_record: Row, failed: Mapping[str, Any]) -> Row:
    """Return the row of an aborted attempt. `of_record` has the columns of its ledger record.

    The row names no target partition, because no reader of committed records sees the output.
    """
    starts, ends = flat(failed.get("starts") or {}), flat(failed.get("ends") or {})
    offsets = sum(ends.get(tp, start) - start for tp, start in starts.items())
    return {
        **of_record,
        "kind": failed.get("kind") or "attempt",
        "outcome": TransactionPhase.COMPLETE_ABORT.value,
        "query_id": failed.get("query_id"),
        "batch_id": failed.get("batch_id"),
        "attempt": failed.get("number"),
        "producer_id": failed["producer_id"],
        "epoch": failed["epoch"],
        "error": failed.get("error"),
        "reason": failed.get("reason"),
        "begun_at": _time(failed.get("begun_ms")),
        "ended_at": _time(failed.get("at_ms")),
        "is_reset": False,
        "sources": _ranges(starts, ends),
        "records_in": offsets,
        "offsets_in": offsets,
    }


def _committed_rows(of_record: Row, record: LedgerRecord) -> Iterator[Row]:
    attempt = record.attempt or {}
    ends = record.position.ends
    starts = flat(attempt["starts"]) if record.attempt else ends
    offsets = sum(ends[tp] - start for tp, start in starts.items())
    row = {
        **of_record,
        "outcome": TransactionPhase.COMPLETE_COMMIT.value,
        "query_id": record.position.query_id,
        "batch_id": record.position.batch_id,
        "attempt": attempt.get("number"),
        "producer_id": record.identity.producer_id,
        "epoch": record.identity.epoch,
        "reason": json.dumps(record.note) if record.note else None,
        "begun_at": _time(attempt.get("begun_ms")),
        "ended_at": _time(record.at_ms),
        "is_reset": record.position.is_reset,
        "sources": _ranges(starts, ends, is_complete=not record.attempt),
        "records_in": offsets,
        "offsets_in": offsets,
        "records_read": _read(attempt, offsets),
    }
    for name in _IN_ONE_ROW:
        if attempt.get(name):
            row[name] = json.dumps(attempt[name])
    receipts = attempt.get("receipts") or [None]
    for receipt in receipts:
        if receipt is None:
            yield row
            continue
        yield {
            **row,
            "target_topic": receipt["topic"],
            "target_partition": receipt["partition"],
            "digest": receipt.get("digest"),
            **{name: receipt[name] for name in _TARGET},
        }
        for name in _IN_ONE_ROW:
            row.pop(name, None)


def _read(attempt: Mapping[str, Any], offsets: int) -> int | None:
    """Return how many visible source records the attempt read; None if the ledger record lacks the
    number. `offsets` is the number of offsets in its ranges: without any, it read none.

    Older releases recorded it only for pipelines with dedup, which gives each record a verdict.
    """
    if not attempt:
        return None
    verdicts = attempt.get("dedup", {}).get("verdicts")
    found = sum(verdicts.values()) if verdicts else attempt.get("records_read")
    return 0 if found is None and not offsets else found


def shared(pipeline: str, ledger: str, ledger_id: str, record: LedgerRecord) -> Row:
    """Return the columns that are the same in all rows of a ledger record."""
    process = record.owner.get("process")
    return {
        "pipeline": pipeline,
        "ledger": ledger,
        "ledger_id": ledger_id,
        "ledger_offset": record.offset,
        "kind": record.kind,
        "deployment": str(record.owner.get("deployment", "")),
        "host": str(record.owner.get("host", "")),
        "process": process if isinstance(process, int) else None,
        "schema_version": SCHEMA_VERSION,
    }


def _ranges(starts: Ends, ends: Ends, *, is_complete: bool = False) -> list[dict[str, Any]]:
    return [
        {"topic": tp.topic, "partition": tp.partition, "start": start, "end": ends[tp]}
        for tp, start in sorted(starts.items())
        if tp in ends and (is_complete or ends[tp] != start)
    ]


def _time(at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms * 1000
