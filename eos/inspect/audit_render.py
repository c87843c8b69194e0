"""How does `eos audit` render transactions, totals and findings as text and as JSON?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eos.audit.history import Summary, Transaction
from eos.finding import Finding
from eos.inspect.audit_live import ClusterState
from eos.inspect.layout import columns, utc

_ANSWERS = {"dead_letter": "dead letter", "drop": "dropped"}
_SHOWN, _FIELDS_SHOWN, _FINDINGS_SHOWN = 20, 40, 20


@dataclass(frozen=True, slots=True)
class AuditResult:
    pipeline: str
    ledger: str
    table: str
    found: Sequence[Transaction]  # oldest first
    summary: Summary
    findings: Sequence[Finding]
    live: ClusterState | None = None


def lines(audited: AuditResult) -> Iterator[str]:
    """Yield the newest transactions, then the totals, then the findings."""
    found, sums = audited.found, audited.summary
    yield f"pipeline    {audited.pipeline}, ledger {audited.ledger}"
    yield f"table       {audited.table}"
    if not found:
        yield "            no transactions: none in this time, or it never ran with a table"
    else:
        yield ""
        yield from _table(found)
        yield ""
        yield (
            f"attempts    {sums.committed:,} committed, {sums.aborted:,} aborted: "
            f"{sums.redo_ratio:.3f} retries per commit"
        )
        yield f"records     {_records(sums)}"
        yield from _rejections(sums)
        yield from sums.producers.lines()
        if sums.restarts:
            last = sums.restarts[-1]
            yield (
                f"restarts    {len(sums.restarts):,}, the last: {owner_text(last)} from "
                f"{utc(last.ended_at)} on"
            )
        for each in sums.takeovers[-_SHOWN:]:
            yield f"taken over  by {owner_text(each)} from {utc(each.ended_at)} on, {kind_of(each)}"
        for each in sums.fenced[-_SHOWN:]:
            yield f"fenced      {each.identity}, {utc(each.ended_at)}: {each.reason}"
    if audited.live is not None:
        yield from _live(audited.live)
    yield ""
    for finding in audited.findings[:_FINDINGS_SHOWN]:
        yield f"{finding.case}: {finding.with_ledger_offset()}"
    if len(audited.findings) > _FINDINGS_SHOWN:
        yield f"and {len(audited.findings) - _FINDINGS_SHOWN} more (--json has all)"
    if not audited.findings:
        yield "no findings"


def _records(sums: Summary) -> str:
    offsets, written = f"{sums.offsets_in:,} offsets", f"{sums.records_out:,} records written"
    if sums.records_in is None:
        return f"{offsets} read, {written}"
    return f"{sums.records_in:,} records read in {offsets}, {written}"


def _rejections(sums: Summary) -> Iterator[str]:
    """Yield a line for each rule that rejected records, and each action on them."""
    for rule, answers in sorted(sums.refused.items()):
        for answer, count in sorted(answers.items()):
            label = _ANSWERS.get(answer, answer)
            yield f"{label:<12}{count:,} records by rule {rule}"


def as_json(audited: AuditResult) -> dict[str, Any]:
    sums = audited.summary
    return {
        "pipeline": audited.pipeline,
        "ledger": audited.ledger,
        "table": audited.table,
        "committed": sums.committed,
        "aborted": sums.aborted,
        "redo_ratio": sums.redo_ratio,
        "records_in": sums.offsets_in,
        "offsets_in": sums.offsets_in,
        "records_read": sums.records_in,
        "records_out": sums.records_out,
        "refused": {rule: dict(answers) for rule, answers in sums.refused.items()},
        "dedup": sums.producers.as_json(),
        "restarts": [_json(each) for each in sums.restarts],
        "takeovers": [_json(each) for each in sums.takeovers],
        "fenced": [_json(each) for each in sums.fenced],
        "transactions": [_json(each) for each in reversed(audited.found)],
        "live": _live_json(audited.live),
        "findings": [
            {"case": each.case, "message": each.message, "offset": each.ledger_offset}
            for each in audited.findings
        ],
    }


def _table(found: Sequence[Transaction]) -> Iterator[str]:
    rows = [("ledger", "ended", "what", "outcome", "producer", "offsets", "in", "out")]
    rows += [
        (
            str(each.ledger_offset),
            utc(each.ended_at),
            kind_of(each),
            each.outcome,
            str(each.identity),
            f"{each.offsets_in:,}",
            "-" if each.records_read is None else f"{each.records_read:,}",
            f"{each.records_out:,}",
        )
        for each in reversed(found[-_SHOWN:])
    ]
    yield from columns(rows, left=5)
    if len(found) > _SHOWN:
        yield f"and {len(found) - _SHOWN:,} earlier ones (--json has all)"


def _live(live: ClusterState) -> Iterator[str]:
    yield ""
    yield f"live        coordinator: {live.phase or 'the transactional id is unknown'}"
    ordered = sorted(live.fields, key=lambda each: each.is_same)
    for each in ordered[:_FIELDS_SHOWN]:
        values = f"{each.table}" if each.is_same else f"table {each.table}, cluster {each.broker}"
        yield f"  {'same' if each.is_same else 'differs':<8}  {each.name}: {values}"
    if len(ordered) > _FIELDS_SHOWN:
        yield f"  and {len(ordered) - _FIELDS_SHOWN} more that are the same (--json has all)"
    for one in live.open:
        tp, owner = one.partition, one.owner or "no coordinator"
        yield f"  open      {tp}, by {owner} {one.phase}".rstrip()


def _live_json(live: ClusterState | None) -> dict[str, Any] | None:
    if live is None:
        return None
    return {
        "coordinator": live.phase,
        "fields": [{**asdict(each), "is_same": each.is_same} for each in live.fields],
        "open": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "producer_id": each.producer.identity.producer_id,
                "epoch": each.producer.identity.epoch,
                "offset": each.producer.transaction_start_offset,
                "transactional_id": each.owner or None,
                "phase": each.phase,
            }
            for each in live.open
        ],
    }


def _json(each: Transaction) -> dict[str, Any]:
    deployment, host, process = each.writer
    return {
        "ledger_offset": each.ledger_offset,
        "kind": each.kind,
        "outcome": each.outcome,
        "query_id": each.query_id,
        "batch_id": each.batch_id,
        "attempt": each.attempt,
        "producer_id": each.identity.producer_id,
        "epoch": each.identity.epoch,
        "error": each.error,
        "reason": each.reason,
        "begun_at": each.begun_at and each.begun_at.isoformat(),
        "ended_at": each.ended_at and each.ended_at.isoformat(),
        "deployment": deployment,
        "host": host,
        "process": process,
        "records_in": each.offsets_in,
        "offsets_in": each.offsets_in,
        "records_read": each.records_read,
        "refused": each.refused,
        "records_out": each.records_out,
        "producer_states": each.dedup.get("states"),
        "sources": {str(tp): list(span) for tp, span in each.sources.items()},
        "targets": {
            str(tp): [row["offset_first"], row["offset_last"], row["records"]]
            for tp, row in each.targets.items()
        },
    }


def kind_of(each: Transaction) -> str:
    if not each.is_attempt:
        return each.kind
    if each.batch_id is None:
        return "an attempt"  # its process died, so its number is unknown
    again = f", attempt {each.attempt}" if (each.attempt or 1) > 1 else ""
    return f"micro-batch {each.batch_id}{again}"


def owner_text(each: Transaction) -> str:
    deployment, host, process = each.writer
    return f"process {process} on {host} ({deployment})"
