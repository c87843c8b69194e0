"""Whether a pipeline runs, by lock and ledger; and the verb where no broker is to be asked."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.doubles import plan
from support.errors import raises
from support.verbs import status

from eos.audit import rows
from eos.audit.table import TransactionsTable
from eos.errors import UnavailableError, UsageError
from eos.inspect import status_render
from eos.inspect.cluster_view import OpenTransaction
from eos.inspect.status import PipelineStatus
from eos.kafka.api import DescribedProducer, Identity, TopicPartition
from eos.ledger.record import Kind, LedgerRecord, Position
from eos.local.file_locks import FileLock
from eos.startup.liveness import Liveness, liveness_of
from eos.startup.ownership import RunLock

GONE = 2**22 + 1  # above what Linux gives to a process


def last(kind: Kind, process: int = GONE, host: str = "", by: str = "here") -> LedgerRecord:
    owner = {"deployment": by, "host": host or socket.gethostname(), "process": process}
    return LedgerRecord(kind, Position({}, {}), owner, at_ms=0, offset=0, identity=Identity(1, 0))


def test_a_held_lock_is_a_run_whatever_the_ledger_says(tmp_path: Path) -> None:
    planned = plan(tmp_path / "lock")
    with closing(RunLock(planned)) as lock:
        lock.acquire(is_forced=False)
        for record in (None, last("stop"), last("attempt")):
            assert liveness_of(planned, record) == (Liveness.YES, os.getpid())
    assert liveness_of(planned, last("stop")) == (Liveness.NO, None)
    assert liveness_of(planned, last("recovery")) == (Liveness.NO, None)
    assert liveness_of(planned, last("attempt")) == (Liveness.DIED, None)
    assert liveness_of(planned, last("attempt", by="there")) == (Liveness.UNKNOWN, None)
    assert liveness_of(planned, None) == (Liveness.NO, None)


def test_a_killed_process_that_nobody_has_waited_for_does_not_run() -> None:
    """A signal finds it, although the kernel has dropped its locks."""
    planned = replace(plan(), names=replace(plan().names, lock=""))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"]) as child:
        assert liveness_of(planned, last("attempt", child.pid)) == (Liveness.YES, child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # and leaves it as it is
        os.kill(child.pid, 0)
        assert liveness_of(planned, last("attempt", child.pid)) == (Liveness.DIED, None)


@pytest.mark.parametrize(
    ("record", "runs"),
    [
        (last("attempt", os.getpid()), (Liveness.YES, os.getpid())),
        (last("attempt"), (Liveness.DIED, None)),
        (last("refresh", host="elsewhere"), (Liveness.UNKNOWN, None)),
        (last("stop", os.getpid()), (Liveness.NO, None)),
    ],
)
def test_without_a_lock_the_last_records_process_tells(record, runs):
    assert liveness_of(replace(plan(), names=replace(plan().names, lock="")), record) == runs


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "pipelines" / "one"
    place.mkdir(parents=True)
    (place / "pipeline.yaml").write_text(
        "version: 1\nname: one\nsource: {kafka: {topic: a}}\nsink: {kafka: {topic: b}}\n"
    )
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yaml").write_text("state: {root: state}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_embedded_broker_that_is_stopped_stays_so(project, capsys):
    assert status(["one"]) == 0
    assert "eos broker start, then eos status one" in capsys.readouterr().out
    assert status(["one", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["note"] == "the embedded broker is stopped"
    assert not (project / "state" / "broker").exists()


def test_a_cluster_that_is_not_there_is_told_at_once_with_the_next_command(project):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (project / "conf" / "local.yaml").write_text(f'kafka: {{bootstrap: "127.0.0.1:{port}"}}\n')
    with raises("brokers_unreachable", UnavailableError) as caught:
        status(["one"])
    assert f"127.0.0.1:{port}: Connection refused" in caught.value.message
    assert "`eos doctor one`" in caught.value.hint


def test_without_a_name_all_pipelines_of_the_state_root_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yaml").write_text("state: {root: state}\n")
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "state"
    assert status([]) == 0
    assert capsys.readouterr().out == f"no pipeline has run with the state root {root}\n"
    row = {
        "kind": "attempt",
        "outcome": "CompleteCommit",
        "pipeline": "gone",
        "ledger": "team.ledger.gone",
        "ended_at": 1_763_800_000_000_000,
    }
    table = TransactionsTable(root / "audit" / "transactions")
    table.known("x")
    table.append(rows.table([row]), "x", 1)
    held, left = FileLock(root / "locks" / "eos.orders"), FileLock(root / "locks" / "eos.payments")
    assert held.try_exclusive()
    (root / "locks" / "eos.orders").write_text("4711")
    with closing(held), closing(left):
        assert status([]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "pipeline   runs             last commit",
            "orders     as process 4711  -",
            "payments   no               -",
            "team.gone  no               2025-11-22T08:26:40.000Z",
        ]
        assert status(["--json"]) == 0
        told = json.loads(capsys.readouterr().out)
    assert told["state_root"] == str(root)
    assert told["pipelines"][0] == {
        "pipeline": "orders",
        "runs": "yes",
        "process": 4711,
        "last_commit": None,
    }
    (tmp_path / "conf" / "remote.yaml").write_text("state: {root: 'hdfs://name:8020/eos'}\n")
    with raises("state_root_remote", UsageError):
        status(["--profile", "remote"])


@pytest.mark.parametrize(("hangs", "is_fine"), [(False, True), (True, False)])
def test_a_transaction_whose_owner_is_not_listed_need_not_hang(hangs: bool, is_fine: bool) -> None:
    producer = DescribedProducer(Identity(8, 0), 3, 41)
    opened = OpenTransaction(TopicPartition("in", 0), producer, "", "", hangs)
    found = PipelineStatus(plan(), Liveness.NO, open=[opened])
    assert found.is_fine is is_fine
    text = "\n".join(status_render.lines(found, "orders"))
    assert ("find-hanging" in text) is hangs
    assert ("a transaction of an owner that this user may not DESCRIBE is open" in text) is is_fine


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (3, "micro-batch 4, which is planned and not committed"),
        (4, "the rest of micro-batch 4, such as its rows in Delta tables"),
    ],
)
def test_a_micro_batch_whose_transaction_is_committed_is_not_called_uncommitted(
    committed: int, expected: str
) -> None:
    attempt = SimpleNamespace(position=SimpleNamespace(batch_id=committed))
    found = PipelineStatus(plan(), Liveness.YES, attempt=attempt, planned_batch=4)  # type: ignore[arg-type] - one field
    assert status_render.waits_for(found) == expected
