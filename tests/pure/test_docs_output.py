"""The output that documents show is what the programs print.

A block of output is compared with what the same code prints for the same values. `...` in a block
stands for any text, and a line of it for any lines. `ELSEWHERE` lists the blocks that a test with a
broker or Spark compares, and those that show no output of a program.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.docs import ROOT, blocks
from support.doubles import plan as planned_of
from support.error_catalogue import entries

from eos.audit.dedup_summary import Producers
from eos.audit.history import summary, transactions
from eos.cli import lint, main, replay
from eos.errors import EosError, UsageError, with_principal
from eos.finding import Witness
from eos.inspect import audit_render, cluster_check, status_list, status_render
from eos.inspect.audit_render import AuditResult
from eos.inspect.check import lines as check_lines
from eos.inspect.cluster_view import OpenTransaction
from eos.inspect.status import PipelineStatus, SourceRow
from eos.kafka.api import (
    Api,
    DescribedProducer,
    DescribedTransaction,
    Identity,
    TopicPartition,
    TransactionProfile,
)
from eos.kafka.cluster_shape import Shape
from eos.kafka.outcomes import describe
from eos.ledger.receipt import Receipt
from eos.ledger.record import LedgerRecord, Position
from eos.observe import events
from eos.observe.console import line as console_line
from eos.observe.live import ProgressLine
from eos.recover.change import LedgerChange, LostOffsets
from eos.report.conclusion import verdict
from eos.report.content import gather
from eos.startup.liveness import Liveness
from eos.verify import render
from eos.verify.chain import CommitChain, Owners
from eos.verify.findings import Findings
from eos.verify.render import RenderedResult
from eos.verify.source import SourcePartition
from eos.verify.target import LogBounds, Retention, Target
from eos.verify.verification import VerificationResult

BLOCKS = dict(blocks(""))
COMMAND = re.compile(r"(\w+=\S+ )*(\./|\$acl |acl=|eos |kafka-)")
ELSEWHERE = {
    "README.md-2": "tests/pipeline/test_demos.py",
    "quickstart.md": "tests/pipeline/test_quickstart.py and test_demos.py",
    "combinations.md": "tests/pipeline/test_demos.py",
    "dedup.md-2": "tests/pipeline/test_demos.py",
    "messages.md-1": "tests/architecture/test_docs.py: the page is generated",
    "recovery.md-1": "tests/kafka/test_recover_explain.py: most of it depends on the cluster",
    "restarts.md-1": "a drawing",
}


def require_shown(block: str, printed: Iterable[str]) -> None:
    """Fail unless the block's lines are among the printed ones, one after another."""
    wanted = [each for each in block.splitlines() if not each.startswith("$ ") and each]
    left = [each.rstrip() for each in printed if each]
    position = 0 if wanted[0] == "..." else None
    for shown in wanted:
        if shown == "...":
            position = None
            continue
        pattern = re.compile(".*".join(map(re.escape, shown.rstrip().split("..."))))
        among = range(len(left)) if position is None else range(position, position + 1)
        found = next((at for at in among if at < len(left) and pattern.fullmatch(left[at])), None)
        assert found is not None, "\n".join([f"not printed: {shown}", "printed:", *left])
        left, position = left[found + 1 :], 0


# --- verbs whose output depends only on files -----------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    main.command(words)()
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("cli.md-3", "orders_enriched"),
        ("delta.md-2", "lakehouse"),
        ("pipelines.md-2", "orders_enriched"),
        ("sinks.md-2", "orders_fanned_out"),
    ],
)
def test_plans(name: str, pipeline: str, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    require_shown(BLOCKS[name], run(capsys, "plan", pipeline))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("stateful.md-2", ROOT / "pipelines" / "sessions" / "pipeline.yaml"),
        ("transforms.md-2", ROOT / "pipelines" / "orders_enriched" / "pipeline.yaml"),
    ],
)
def test_names_of_tests_in_pipelines(name: str, file: Path) -> None:
    declared = yaml.safe_load(file.read_text())
    tests = [f"ok    {declared['name']}: {each['name']}" for each in declared["tests"]]
    assert BLOCKS[name].splitlines() == tests


def test_a_new_project(tmp_path: Path, capsys) -> None:
    run(capsys, "init", str(tmp_path / "shop"))
    declared = yaml.safe_load((tmp_path / "shop/pipelines/shop/pipeline.yaml").read_text())
    tests = [f"ok    shop: {each['name']}" for each in declared["tests"]]
    assert BLOCKS["testing-your-pipeline.md-2"].splitlines() == tests


def test_lint(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    run(capsys, "init", str(tmp_path / "shop"))
    monkeypatch.chdir(tmp_path / "shop")
    (tmp_path / "shop/pipelines/shop/pipeline.yaml").write_text(
        "version: 1\nname: shop\nsource:\n  kafka: {topic: shop.in}\n"
        '  value: {json: "order_id BIGINT, amount DECIML"}\n'
        "  on_error: drp\nsink:\n  kafka: {topic: shop.out, value: json}\n"
    )
    assert lint.lint([Path("pipelines/shop/pipeline.yaml")], as_json=False) == 1
    require_shown(BLOCKS["formats.md-2"], capsys.readouterr().out.splitlines())


def test_a_pipeline_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipelines").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        main.command(["lint", "nothing"])()
    printed = f"eos: {caught.value}".replace(str(tmp_path), "/srv/shop")
    require_shown(BLOCKS["cli.md-2"], printed.splitlines())


# --- what a ledger, a table and a cluster have ----------------------------------------------------


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


# --- a run's own lines ----------------------------------------------------------------------------


def test_the_progress_line() -> None:
    now = [100.0]
    live = ProgressLine("orders", io.StringIO(), 200, lambda: now[0])
    live.lag = lambda: 1204
    sizes = (1, 1, 1, 1, 1)

    def committed(batch_id: int, records: int) -> None:
        live(events.MicroBatchCommitted(batch_id, 1, records, records, records, *sizes))

    live(events.AttemptFailed(40, 1, "why", will_redo=True))
    committed(40, 0)
    now[0] += 10
    committed(41, 482_100)
    live.reached("end_txn_sent:before")
    require_shown(BLOCKS["running.md-2"], [live.text()])


def test_an_outage() -> None:
    since = at("2026-11-18T11:06:40").timestamp()
    silent = events.BrokersSilent(since, 9, "no broker of kafka-1:9092 answers: ECONNREFUSED", "")
    printed = [f"eos: {console_line(each)}" for each in (silent, events.BrokersAnswer(75))]
    require_shown(BLOCKS["brokers.md-4"], printed)


class OneBroker:
    """The answers of a cluster of one broker."""

    def agree_on_profile(self, _deadline: object) -> TransactionProfile:
        return TransactionProfile.TV2

    def transaction_version(self, _deadline: object) -> int:
        return 2

    def shape(self, names: Sequence[str], _deadline: object) -> Shape:
        return Shape((1,), dict.fromkeys(names, 1), dict.fromkeys(names, 1))

    def broker_config(self, name: str, _deadline: object) -> str:
        return {"transaction.max.timeout.ms": "900000"}.get(name, "1")


def test_checks_of_a_cluster() -> None:
    client: Any = OneBroker()
    planned = replace(planned_of(), transaction_timeout_ms=600_000)
    found = list(cluster_check.cluster(client, None))
    timeout = cluster_check._timeout(900_000, planned)
    shown = [timeout if each.subject == "timeouts" else each for each in found]
    require_shown(BLOCKS["brokers.md-1"], check_lines(shown))


def test_a_missing_right() -> None:
    refused: EosError = describe(Api.PRODUCE, 29, where="orders.enriched-0")
    require_shown(
        BLOCKS["security.md-4"], f"eos: {with_principal('User:eos', refused)}".splitlines()
    )


def test_a_retry_of_dedup() -> None:
    (message,) = (each.message for each in entries() if each.code == "duplicates_written")
    values = {"counts": "3 duplicate", "VALIDATE_FIRST_MAX": "8"}
    for name, value in values.items():
        message = message.replace(f"{{{name}}}", value)
    retried = events.AttemptRetried(12, 1, message)
    require_shown(BLOCKS["how-dedup-works.md-1"], [f"eos: {console_line(retried)}"])


# --- and no block is left over --------------------------------------------------------------------


def test_each_block_is_compared() -> None:
    here = Path(__file__).read_text()
    unknown = [
        name
        for name, text in BLOCKS.items()
        if not COMMAND.match(text)
        and f'BLOCKS["{name}"]' not in here
        and f'("{name}", ' not in here
        and not {name, name.partition("-")[0], name.rpartition("-")[0]} & ELSEWHERE.keys()
    ]
    assert not unknown


@pytest.mark.parametrize("printed", [["one", "three"], ["two", "one"], ["one"]])
def test_a_block_that_differs_is_found(printed: list[str]) -> None:
    with pytest.raises(AssertionError):
        require_shown("one\ntwo\n", printed)
