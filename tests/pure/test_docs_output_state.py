"""The output in documents about a ledger, a table or a cluster is what the programs print.

The values of the documents are given to the code that renders them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from support.delta.proven_lake import store_of
from support.docs import blocks, require_shown
from support.doubles import plan as planned_of

from eos.audit.dedup_summary import Producers
from eos.audit.history import summary, transactions
from eos.cli import replay
from eos.finding import Witness
from eos.inspect import audit_render, status_list, status_render
from eos.inspect.audit_render import AuditResult
from eos.inspect.cluster_view import OpenTransaction
from eos.inspect.status import PipelineStatus, SourceRow
from eos.kafka.api import (
    DescribedProducer,
    DescribedTransaction,
    Identity,
    TopicPartition,
)
from eos.ledger.receipt import Receipt
from eos.ledger.record import LedgerRecord, Position, RowCounts
from eos.plan.delta_sink import Table
from eos.recover.change import LedgerChange, LostOffsets
from eos.report.conclusion import verdict
from eos.report.content import gather
from eos.startup.liveness import Liveness
from eos.verify import render
from eos.verify.chain import CommitChain, Owners
from eos.verify.findings import Findings
from eos.verify.render import RenderedResult
from eos.verify.source import SourcePartition
from eos.verify.table_commits import TableCommits
from eos.verify.table_proof import TableProof
from eos.verify.target import LogBounds, Retention, Target
from eos.verify.verification import VerificationResult

BLOCKS = dict(blocks(""))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def row(offset: int, kind: str, ended: str, **values: Any) -> dict[str, Any]:
    writer = {"deployment": "/var/lib/eos", "host": "a", "process": 4711, "is_reset": False}
    attempt = {"query_id": "q", "batch_id": None, "attempt": None, "error": None, "reason": None}
    identity = {"ledger_id": "id", "producer_id": 1, "epoch": offset // 2}
    ends = {"begun_at": None, "ended_at": at(ended), "sources": [], "records_in": 0}
    place = {"ledger_offset": offset, "kind": kind, "outcome": "CompleteCommit"}
    return {**writer, **attempt, **identity, **ends, **place, "target_topic": None, **values}


def audited(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = transactions(rows)
    table = "/var/lib/eos/audit/transactions"
    result = AuditResult("orders", "eos.ledger.orders", table, found, summary(found), ())
    return list(audit_render.lines(result))


SPAN = [{"topic": "orders", "partition": 0, "start": 0, "end": 1000}]
TARGET = {"target_topic": "out", "target_partition": 0, "records": 999, "bytes": 9}
TARGET |= {"offset_first": 0, "offset_last": 998, "sequence_first": 0, "sequence_last": 998}
COMMITTED = {"batch_id": 0, "attempt": 1, "sources": SPAN, "records_in": 1000, **TARGET}


def test_an_audit() -> None:
    rows = [
        row(0, "start", "2026-11-23T14:48:20.577"),
        row(2, "attempt", "2026-11-23T14:48:40.241", records_read=1000, **COMMITTED),
        row(4, "stop", "2026-11-23T14:48:40.335"),
    ]
    require_shown(BLOCKS["audit.md-1"], audited(rows))


def test_an_audit_of_dead_letters_restarts_and_takeovers() -> None:
    rejected = '{"paid": {"dead_letter": 8}}'
    rows = [
        row(0, "start", "2026-11-21T08:00:00"),
        row(2, "attempt", "2026-11-21T08:00:01", refused=rejected, **COMMITTED),
        row(4, "start", "2026-11-21T09:00:00", process=4713),
        row(6, "start", "2026-11-21T10:00:07.120", process=4712),
        row(8, "start", "2026-11-21T11:30:00", host="b", process=311),
    ]
    require_shown(BLOCKS["audit.md-2"], audited(rows))


def test_an_audit_of_dedup() -> None:
    sums = Producers()
    sums.add(
        {
            "verdicts": {"appended": 200, "duplicate": 100, "fenced": 5, "gap": 1},
            "states": 12,
            "producers": [["payments", 0, "till-a", "duplicate", 100, 100, 264]],
            "gaps": [["payments", 1, "till-b", 0, 20, 25, 77]],
        }
    )
    require_shown(BLOCKS["audit.md-3"], sums.lines())


def test_a_report() -> None:
    rows = [row(2, "attempt", "2026-11-23T14:48:40.241", records_read=1000, **COMMITTED)]
    found = verdict(gather(transactions(rows)), None)
    require_shown(
        BLOCKS["report.md-2"], [f"{found.word}: {found.sentence}", "payments_deduped.report.html"]
    )


OUT = TopicPartition("orders.out", 0)


def rendered(findings: Findings, targets: Sequence[Target] = (), **values: Any) -> list[str]:
    chain = CommitChain()
    chain.attempts = 8
    source = TopicPartition("orders", 0)
    sources = [SourcePartition(source, 0, 4_000_000, Retention(), findings, records=4_000_000)]
    result = VerificationResult(findings, chain, 0, 18, list(targets), sources, **values)
    saved = "/var/lib/eos/verified/eos.orders.json"
    return list(
        render.lines(
            RenderedResult(
                "orders",
                "eos.ledger.orders",
                result,
                None,
                [],
                frozenset(),
                4_000_000 / 769_823,
                saved if "same" in values else "",
            )
        )
    )


def test_a_verification() -> None:
    findings = Findings()
    target = Target(OUT, Owners(), findings)
    target.records, target.receipts = 4_000_000, 32
    same = [
        "transactions",
        "group offsets",
        "checkpoint",
        "transactional id",
        "no open transaction",
    ]
    require_shown(BLOCKS["verify.md-1"], rendered(findings, [target], same=same))


def test_a_verification_that_finds_a_loss() -> None:
    findings = Findings()
    target = Target(OUT, Owners(), findings)
    witness = Witness(4, "attempt", 1, 1, Identity(12, 3))
    target.expect([(witness, Receipt("orders.out", 0, 15, 7, 21, 100, 0))])
    part = next(iter(target._parts.values()))
    part.records, part.offset_first, part.offset_last = 10, 7, 16
    target.settle(LogBounds(0, 30, 30), Retention(can_expire=False))
    require_shown(BLOCKS["verify.md-2"], rendered(findings, [target]))


def test_a_verification_of_delta_tables() -> None:
    proofs = {}
    for name, keys, rows, files in (
        ("orders_history", (), RowCounts(4_000_000), 32),
        ("orders_now", ("order_id",), RowCounts(3_000_000, 1_000_000), 4),
    ):
        store = store_of(Table(name, "/lake", keys))
        proof = TableProof(store, "id", TableCommits(store.log("app")), Findings())
        proof.micro_batches = proof.commits = 8
        proof.rows, proof.files.checked = rows, files
        proofs[name] = proof
    require_shown(BLOCKS["verify.md-3"], rendered(Findings(), tables=proofs))


def status_of_orders() -> PipelineStatus:
    here = "5b6c1f0e9d2a4c7f8e3b0a1d2c4f6e80"
    owner = {"deployment": here, "host": "a", "process": 4711}
    at_ms = int(at("2026-11-21T10:00:07.120").timestamp() * 1000)
    attempt = {"number": 1, "receipts": [{"records": 50_000}]}
    last = LedgerRecord(
        "attempt", Position({}, {}, "q", 128), owner, at_ms, 260, Identity(12, 260), attempt
    )
    mine, identity = "eos.orders", Identity(12, 261)
    opened = [
        OpenTransaction(TopicPartition("out", number), DescribedProducer(identity, 0, 7), mine, "")
        for number in range(5)
    ]
    rows = [
        SourceRow(TopicPartition("orders", number), 0, 0, lag, lag, lag)
        for number, lag in enumerate((204, 1000))
    ]
    state = DescribedTransaction("Ongoing", identity, 60_000)
    return PipelineStatus(
        planned_of(), Liveness.YES, 4711, last, last, state, opened, rows, planned_batch=129
    )


def test_a_status() -> None:
    require_shown(BLOCKS["cli.md-4"], status_render.lines(status_of_orders(), "orders"))


def test_a_list_of_pipelines() -> None:
    found = [
        status_list.PipelineEntry("orders", Liveness.YES, 4711, at("2026-11-21T10:00:07.120")),
        status_list.PipelineEntry("payments", Liveness.NO, None, at("2026-11-20T08:11:54.002")),
    ]
    require_shown(BLOCKS["cli.md-1"], status_list.lines(Path("/var/lib/eos"), found))


def test_a_proposed_change() -> None:
    gone = TopicPartition("orders.orders", 0)
    before, after = Position({gone: 473}, {}), Position({gone: 624}, {}, is_reset=True)
    lost = f"151 offsets of {gone} are lost: 473 to 623 were deleted before they were read"
    change = LedgerChange(
        "--accept-start", before, after, {gone: 473}, [lost], [LostOffsets(gone, 473, 624)]
    )
    lines = [f"  {each}" for each in (*change.lines(), *change.remarks)]
    command = "eos recover orders --accept-start --yes"
    printed = [*lines, "nothing is changed yet; to apply it:", f"  $ {command}"]
    require_shown(BLOCKS["recovery.md-2"], printed)


def test_dead_letters_that_wait(capsys) -> None:
    waiting = {"malformed": 1, "known_customer": 1}
    replay._print_results("shop", "shop.dlq", list(waiting), waiting, {}, [], as_json=False)
    require_shown(BLOCKS["dead-letters.md-2"], capsys.readouterr().out.splitlines())
