"""The output that documents show is what the programs print.

A block of output is compared with what the same code prints for the same values, here and in
`test_docs_output_state.py`. `ELSEWHERE` lists the blocks that a test with a broker or Spark
compares, and those that show no output of a program.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.docs import ROOT, blocks, require_shown
from support.docs.messages import entries
from support.doubles import plan as planned_of

from eos.cli import fetch, lint, main
from eos.errors import EosError, UsageError, with_principal
from eos.inspect import cluster_check
from eos.inspect.check import lines as check_lines
from eos.kafka.api import (
    Api,
    TransactionProfile,
)
from eos.kafka.cluster_shape import Shape
from eos.kafka.outcomes import describe
from eos.local.java import Java
from eos.native.library import Status
from eos.observe import events
from eos.observe.bottom_line import Terminal
from eos.observe.console import line as console_line
from eos.observe.live import ProgressLine

BLOCKS = dict(blocks(""))
COMMAND = re.compile(r"(\w+=\S+ )*(\./|\.venv/|\$acl |acl=|eos |kafka-)")
ELSEWHERE = {
    "README.md-2": "tests/pipeline/test_demos.py",
    "quickstart.md": "tests/pipeline/test_quickstart.py and test_demos.py",
    "combinations.md": "tests/pipeline/test_demos.py",
    "dedup.md-2": "tests/pipeline/test_demos.py",
    "messages.md-1": "tests/architecture/test_docs.py: the page is generated",
    "monitoring.md-2": "tests/pipeline/test_monitoring.py",
    "monitoring.md-4": "tests/pipeline/test_monitoring.py",
    "monitoring.md-6": "tests/pure/test_watch.py",
    "recovery.md-1": "tests/kafka/test_recover_explain.py: most of it depends on the cluster",
    "restarts.md-1": "a drawing",
    "running.md-4": "tests/pure/test_stop_marker.py",
    "several-pipelines.md-2": "tests/pipeline/test_several.py",
    "running.md-5": "the name of a library, which each machine builds",
    "yarn.md-3": "tests/pipeline/test_yarn.py",
}


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


# --- a run's own lines ----------------------------------------------------------------------------


def test_the_progress_line() -> None:
    now = [100.0]
    live = ProgressLine("orders", io.StringIO(), Terminal(200), lambda: now[0])
    live.lag = lambda: 1204
    sizes = (1, 1, 1, 1, 1)

    def committed(batch_id: int, records: int) -> None:
        live(events.MicroBatchCommitted(batch_id, 1, records, records, records, *sizes))

    live(events.AttemptFailed(40, 1, "why", will_redo=True))
    committed(40, 0)
    now[0] += 10
    committed(41, 482_100)
    live(events.AttemptStarted(42, 1, 12, 262))
    live.reached("end_txn_sent:before")
    require_shown(BLOCKS["running.md-2"], [live.line().plain])


def test_the_bar_of_a_backfill() -> None:
    now = [100.0]
    live = ProgressLine("orders", io.StringIO(), Terminal(200), lambda: now[0])
    live.follow(lambda: 31_400_000, is_bounded=True)
    live.reached("begin:after")
    now[0] += 294
    live(events.MicroBatchCommitted(7, 1, 51_600_000, 51_600_000, 1, 1, 1, 1, 1, 1))
    # The bar's colours show what is done.
    shown = re.sub("[\u2501\u2578\u257a]{10}", "######----", live.line().plain)
    require_shown(BLOCKS["running.md-3"], [shown])


def test_an_outage() -> None:
    since = datetime(2026, 11, 18, 11, 6, 40, tzinfo=timezone.utc).timestamp()
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


def test_fetch() -> None:
    home, cache = Path("/usr/lib/jvm/java-17-openjdk-amd64"), Path("/srv/eos/.cache/spark-eos")
    native = Status(object(), "cache", f"{cache}/native/dd20d6cbf88e68cb-linux-x86_64.so")
    printed = fetch.lines(Java(home, 17, "PATH"), ["4.2"], 47, cache / "jars", native)
    require_shown(BLOCKS["install.md-3"], printed)


# --- and no block is left over --------------------------------------------------------------------


def test_each_block_is_compared() -> None:
    here = "".join(path.read_text() for path in Path(__file__).parent.glob("test_docs_output*.py"))
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
