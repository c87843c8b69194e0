"""Histories for the report: as long as one wants, with what is out of the ordinary in between."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from eos.audit.history import Transaction
from eos.inspect.audit_live import ClusterState
from eos.kafka.api import Identity, TopicPartition
from eos.report.content import PageContent, gather
from eos.report.page import Subject, page

NOW = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
RECORDS = 10
_OURS, _OTHERS = ("/var/lib/eos", "host-1", 11), ("/var/lib/eos", "host-2", 12)


def transaction(number: int, topic: str = "orders", at: datetime = NOW, **values) -> Transaction:
    """Micro-batch `number`, which committed: ten records, in and out."""
    source, target = TopicPartition(topic, 0), TopicPartition(f"{topic}.out", 0)
    given = {
        "ledger_id": "lid",
        "ledger_offset": 2 * number,
        "kind": "attempt",
        "outcome": "CompleteCommit",
        "query_id": "q",
        "batch_id": number,
        "attempt": 1,
        "identity": Identity(9 + number // 30_000, number % 30_000),
        "error": "",
        "reason": "",
        "begun_at": at,
        "ended_at": at + timedelta(milliseconds=80 + number % 50),
        "writer": _OURS,
        "is_reset": False,
        "sources": {source: (number * RECORDS, (number + 1) * RECORDS)},
        "offsets_in": RECORDS,
        "records_read": None,
        "targets": {
            target: {
                "records": RECORDS,
                "sequence_first": 0,
                "sequence_last": RECORDS - 1,
                "offset_first": number * (RECORDS + 1),
                "offset_last": number * (RECORDS + 1) + RECORDS - 1,
                "bytes": 900,
            }
        },
        **values,
    }
    return Transaction(**given)


def aborted(number: int, at: datetime = NOW, **values) -> Transaction:
    given = {
        "outcome": "CompleteAbort",
        "targets": {},
        "error": "task_failed",
        "reason": "a writer's task failed",
        "identity": Identity(1, number),
        **values,
    }
    return transaction(number, at=at, **given)


def history(
    count: int,
    *,
    topic: str = "orders",
    every_s: float = 1.0,
    aborts: int = 0,
    fences: int = 0,
    reason: str = "a writer's task failed",
) -> Iterator[Transaction]:
    """`aborts`, `fences`: one in so many micro-batches; what is aborted is redone."""
    writer = _OURS
    for number in range(count):
        at = NOW + timedelta(seconds=every_s * number)
        is_fenced = fences and number % fences == fences // 2
        is_aborted = aborts and number % aborts == aborts // 2
        if is_fenced:
            taken = "another process took the pipeline over"
            yield aborted(number, at, topic=topic, error="fenced", reason=taken, writer=writer)
            writer = _OTHERS if writer == _OURS else _OURS
        elif is_aborted:
            yield aborted(number, at, topic=topic, reason=reason, writer=writer)
        attempt = 2 if is_aborted or is_fenced else 1
        yield transaction(number, topic, at, attempt=attempt, writer=writer)


def made(
    found: Iterator[Transaction] | PageContent,
    pipeline: str = "orders_enriched",
    cluster: ClusterState | None = None,
    since: str = "",
) -> str:
    gathered = found if isinstance(found, PageContent) else gather(found)
    at = (gathered.last_at or NOW) + timedelta(minutes=1)
    table = "/var/lib/eos/audit/transactions"
    subject = Subject(pipeline, f"eos.ledger.{pipeline}", table, "0.1.0", at, since)
    return page(subject, gathered, cluster)
