"""How does `eos status` render a pipeline's status as text and as JSON?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from eos.inspect.cluster_view import OpenTransaction
from eos.inspect.layout import record_time
from eos.inspect.status import PipelineStatus, SourceRow
from eos.ledger.record import LedgerRecord
from eos.startup.liveness import Liveness

_ROWS_MAX = 20


def lines(found: PipelineStatus, argument: str) -> Iterator[str]:
    """Yield the status as lines; `argument` is the command's pipeline and profile."""
    name = found.planned.names.pipeline
    yield f"pipeline     {name}: {_runs(found)}"
    yield f"owner        {_owner(found)}"
    yield f"committed    {_attempt(found.attempt)}"
    yield f"transaction  {_transaction(found)}"
    for each in found.open:
        if each.hangs or not _is_own(found, each):
            yield f"             {_open(each)}"
    yield f"lag          {found.lag:,} offsets{_lag_by_partition(found.rows)}"
    yield f"waits for    {waits_for(found)}"
    more = next_step(found, argument)
    if more:
        yield f"next         {more}"


def as_json(found: PipelineStatus, argument: str) -> dict[str, Any]:
    last, state = found.last, found.transaction
    return {
        "pipeline": found.planned.names.pipeline,
        "runs": found.runs.value,
        "process": found.process,
        "owner": None if last is None else dict(last.owner),
        "last_record": None if last is None else _record(last),
        "last_attempt": None if found.attempt is None else _record(found.attempt),
        "transaction": None
        if state is None
        else {"phase": state.phase, **state.identity._asdict()},
        "open": [
            {**each.partition._asdict(), "owner": each.owner, "phase": each.phase}
            | {"from": each.producer.transaction_start_offset, "hangs": each.hangs}
            | each.producer.identity._asdict()
            for each in found.open
        ],
        "lag": found.lag,
        "partitions": [
            {
                **row.partition._asdict(),
                **{k: v for k, v in asdict(row).items() if k != "partition"},
            }
            for row in found.rows
        ],
        "waits_for": waits_for(found),
        "next": next_step(found, argument),
        "fine": found.is_fine,
    }


def waits_for(found: PipelineStatus) -> str:
    """Return a text on what the pipeline waits for, such as new records or its tasks."""
    blocked = [row for row in found.rows if row.stable < row.latest]
    if found.runs is Liveness.UNKNOWN:
        return "unknown here: run `eos status` on the owner's machine"
    if found.runs is not Liveness.YES:
        return f"a run, to read {found.lag:,} offsets" if found.lag else "a run"
    if found.is_writing:
        return "its tasks: a transaction is open"
    if found.planned_batch is not None:
        if found.attempt is not None and found.attempt.position.batch_id == found.planned_batch:
            return (
                f"the rest of micro-batch {found.planned_batch}, such as its rows in Delta tables"
            )
        return f"micro-batch {found.planned_batch}, which is planned and not committed"
    if found.lag:
        return f"Spark, to plan the next micro-batch: {found.lag:,} offsets can be read"
    if blocked:
        tp = blocked[0].partition
        count = sum(row.latest - row.stable for row in blocked)
        return (
            f"other producers' open transactions: {count:,} offsets are not committed, the first "
            f"is {blocked[0].stable} in {tp}"
        )
    return "new records"


def next_step(found: PipelineStatus, argument: str) -> str:
    if found.hanging:
        return "kafka-transactions.sh --bootstrap-server ... find-hanging, then abort"
    if found.runs is Liveness.DIED:
        return f"eos recover {argument}"
    return ""


def _runs(found: PipelineStatus) -> str:
    if found.runs is Liveness.YES:
        return f"runs as process {found.process}" if found.process else "runs"
    if found.runs is Liveness.DIED:
        return "does not run, and did not end cleanly"
    if found.runs is Liveness.UNKNOWN:
        return "may run elsewhere: it did not end cleanly"
    return "never ran" if found.last is None else "does not run"


def _owner(found: PipelineStatus) -> str:
    last = found.last
    if last is None:
        return "none: the ledger is empty"
    owner = last.owner
    place = f"deployment {owner.get('deployment')!r}, host {owner.get('host')}"
    kinds = {"stop": "a clean end", "recovery": "a recovery"}
    kind = kinds.get(last.kind, f"a record ({last.kind})")
    return f"{place}, process {owner.get('process')}; last wrote {kind}, {record_time(last)}"


def _attempt(record: LedgerRecord | None) -> str:
    if record is None:
        return "no micro-batch is in the ledger"
    receipts = (record.attempt or {}).get("receipts", ())
    written = sum(int(each.get("records", 0)) for each in receipts)
    tries = (record.attempt or {}).get("number", 1)
    redone = f", after {tries - 1} failed attempts" if tries > 1 else ""
    batch_id, time = record.position.batch_id, record_time(record)
    return f"micro-batch {batch_id}, {written:,} records out, {time}{redone}"


def _transaction(found: PipelineStatus) -> str:
    state = found.transaction
    if state is None:
        return "none is known to the coordinator, or it can't be read"
    place = sorted({each.partition for each in found.open if _is_own(found, each)})
    on = f", open on {len(place)} partitions" if place else ""
    identity = state.identity
    return f"{state.phase}{on} (producer id {identity.producer_id}, epoch {identity.epoch})"


def _is_own(found: PipelineStatus, each: OpenTransaction) -> bool:
    return each.owner == found.planned.names.transactional_id


def _open(each: OpenTransaction) -> str:
    tp, producer = each.partition, each.producer
    subject = (
        "a hanging transaction, which no coordinator will end,"
        if each.hangs
        else f"a transaction of {each.owner_text}"
    )
    return (
        f"{subject} is open on {tp} from offset "
        f"{producer.transaction_start_offset} on (producer id {producer.identity.producer_id})"
    )


def _lag_by_partition(rows: Sequence[SourceRow]) -> str:
    """Return a text with the lag of each partition that has some, largest first; may be empty."""
    lagging = sorted((row for row in rows if row.lag), key=lambda row: -row.lag)
    shown = [f"{row.partition} {row.lag:,}" for row in lagging[:_ROWS_MAX]]
    more = f", and {len(lagging) - _ROWS_MAX} more partitions" if len(lagging) > _ROWS_MAX else ""
    return f": {', '.join(shown)}{more}" if shown else ""


def _record(record: LedgerRecord) -> dict[str, Any]:
    position = record.position
    return {
        "offset": record.offset,
        "kind": record.kind,
        "at": record_time(record),
        "query_id": position.query_id,
        "batch_id": position.batch_id,
    }
