"""`eos plan --check` beside a cluster that does not answer: one finding, and no more waits."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support.verbs import plan

import eos.cli.plan as plan_command
from eos.inspect import cluster_check, topic_check
from eos.inspect.check import Check, note, ok
from eos.kafka.refusals import unreachable


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "pipelines" / "one"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(
        "version: 1\nname: one\nsource: {kafka: {topic: a}}\nsink: {delta: {path: lake}}\n"
    )
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EOS_PROFILE", raising=False)

    def spark(*_: Any) -> Iterator[Check]:
        yield note("spark", "the file's checks")

    def waits(*_: Any) -> NoReturn:
        raise AssertionError("it would wait for a broker")

    monkeypatch.setattr(plan_command, "_spark", spark)
    monkeypatch.setattr(plan_command, "_tables_in_ledger", waits)
    return tmp_path


def told(
    project: Path, capsys: pytest.CaptureFixture[str], address: str
) -> dict[str, dict[str, Any]]:
    (project / "conf" / "local.yaml").write_text(
        f'kafka: {{bootstrap: "{address}"}}\nstate: {{root: state}}\n'
    )
    assert plan(["one", "--check", "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert not found["fine"]
    assert [each["level"] for each in found["checks"]].count("finding") == 1
    return {each["what"]: each for each in found["checks"]}


def test_an_address_at_which_nobody_listens_is_one_finding(project, capsys, monkeypatch):
    def connects(_: Any) -> NoReturn:
        raise AssertionError("a client would retry until its deadline")

    monkeypatch.setattr(plan_command, "_cluster", connects)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    found = told(project, capsys, address)
    assert list(found) == ["brokers", "audit", "spark"]
    assert f"{address}: Connection refused" in found["brokers"]["says"]
    assert "`eos doctor one` checks" in found["brokers"]["remedy"]


def test_a_broker_that_listens_and_does_not_answer_is_asked_once(project, capsys, monkeypatch):
    monkeypatch.setattr(cluster_check, "_TIMEOUT_MS", 300)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        found = told(project, capsys, address)
    assert list(found) == ["features", "audit", "spark"]
    assert f"no broker of {address} answers" in found["features"]["says"]


def test_a_source_cluster_that_does_not_answer_ends_the_checks(project, capsys, monkeypatch):
    def source(*_: Any) -> NoReturn:
        raise unreachable(("other:9092",), "timeout")

    def waits(*_: Any) -> NoReturn:
        raise AssertionError("each would wait for its own time limit")

    monkeypatch.setattr(cluster_check, "cluster", lambda *_: iter([ok("features", "TV2")]))
    monkeypatch.setattr(topic_check, "_source", source)
    monkeypatch.setattr(topic_check, "_rights", waits)
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = told(project, capsys, f"127.0.0.1:{server.getsockname()[1]}")
    assert list(found) == ["features", "source", "audit", "spark"]
