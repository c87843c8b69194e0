"""`guarantee: at_least_once`: what it refuses of a file, what is planned, and which verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from eos.cli.audit import audit
from eos.cli.doctor import doctor
from eos.cli.lint import find
from eos.cli.plan import plan_verb
from eos.cli.recover import recover
from eos.cli.replay import replay
from eos.cli.report import report
from eos.cli.status import status
from eos.cli.verify import verify
from eos.errors import UsageError

SINK = "kafka: [{topic: out}, {topic: some, where: id > 1, partition: p}]"
JSON = '{json: "id INT, ts TIMESTAMP"}'
DEDUP = "dedup: {by: [id], within: 1 day, watermark: ts}"


def written(folder: Path, *, sink: str = SINK, on_error: str = "fail", more: str = "") -> Path:
    path = folder / "pipelines" / "one" / "pipeline.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"""\
version: 1
name: one
source: {{kafka: {{topic: orders}}, value: {JSON}, on_error: {on_error}}}
sink: {{{sink}}}
{more}
guarantee: at_least_once
"""
    )
    return path


def test_what_spark_can_write_by_itself_is_taken(tmp_path: Path) -> None:
    more = "expect: [{name: paid, rule: id > 0}]\noutput_mode: update"
    assert list(find(written(tmp_path, more=more))) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"more": DEDUP}, "no `dedup` (what it drops would come again"),
        ({"more": "transaction: {timeout: 1 minute}"}, "no `transaction` (there is none)"),
        ({"on_error": "drop"}, "no `on_error: drop` (what is left out is counted"),
        (
            {"more": "expect: [{name: paid, rule: id > 0, on_error: drop}]"},
            "no `on_error: drop` (what is left out is counted",
        ),
        ({"sink": f"{SINK}, dead_letter: dlq"}, "no dead letters (only a transaction"),
        ({"sink": f"{SINK}, delta: {{path: lake/x}}"}, "no Delta tables (the ledger says"),
        ({"sink": "kafka: {topic: out, timestamp: ts}"}, "no `timestamp` of a sink (Spark's"),
        (
            {"sink": "kafka: {topic: out, partitioner: round_robin}"},
            "no `partitioner` other than key (Spark's",
        ),
        (
            {"sink": "kafka: [{topic: out}, {topic: some, compression: zstd}]"},
            "no sinks of different `compression` (Spark's",
        ),
    ],
)
def test_what_needs_the_transaction_is_refused_with_the_reason(
    tmp_path: Path, given: dict[str, str], told: str
) -> None:
    (problem,) = find(written(tmp_path, **given))
    assert problem.message.startswith(f"expected beside `at_least_once` {told}")
    assert (problem.line, problem.severity) == (6, "error")


def test_all_that_is_refused_is_told_at_once(tmp_path: Path) -> None:
    (problem,) = find(written(tmp_path, on_error="dead_letter", more=DEDUP))
    assert "no `dedup` (" in problem.message
    assert "; no dead letters (" in problem.message


def test_the_plan_names_guarantee_and_mechanism_of_each_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(written(tmp_path).parents[2])
    assert plan_verb(["one"]) == 0
    said = capsys.readouterr().out
    assert said.count("guarantee: at least once") == 2
    assert said.count("by: Spark's own Kafka sink, without a transaction") == 2
    assert f"checkpoint   {tmp_path}/.eos/at_least_once/eos.one" in said
    assert "exactly once" not in said
    assert "ledger" not in said
    assert plan_verb(["one", "--mermaid"]) == 0
    chart = capsys.readouterr().out
    assert "transaction" not in chart
    assert "source --> sink_2" in chart


@pytest.mark.parametrize("verb", [audit, doctor, recover, replay, report, status, verify])
def test_verbs_about_transactions_say_that_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: object
) -> None:
    monkeypatch.chdir(written(tmp_path).parents[2])
    assert callable(verb)
    with pytest.raises(UsageError) as refused:
        verb(["one"])
    assert f"`eos {verb.__name__}` is about transactions" in refused.value.message
