"""Which nodes of the embedded broker a process stops: without a JVM, by supervisors of `sleep`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.errors import raises
from support.waiting import wait_until

from eos.errors import UnavailableError
from eos.local import broker_node, embedded_kafka, supervisor
from eos.local.broker_node import Node
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.file_locks import FileLock


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileLock]:
    """The lock of another user, for which node 1 of a cluster of two nodes runs."""
    monkeypatch.setattr(Node, "prepare", lambda *_: None)
    monkeypatch.setattr(Node, "make_archive", lambda _: None)
    ports = broker_node.free_ports(4)
    known = {"id": "E", "ports": [ports[:2], ports[2:]]}
    (tmp_path / "cluster.json").write_text(json.dumps(known))
    other = FileLock(tmp_path / "users")
    assert other.try_shared()
    process = supervised(nodes(tmp_path)[0], "sleep", "60")
    try:
        yield other
    finally:
        other.close()  # after which its supervisor ends
        process.wait(30)


def nodes(root: Path) -> tuple[Node, ...]:
    return broker_node.nodes_of(root, json.loads((root / "cluster.json").read_text()))


def supervised(node: Node, *command: str) -> subprocess.Popen[bytes]:
    node.folder.mkdir(exist_ok=True)
    words = [sys.executable, "-I", "-S", supervisor.__file__, str(node.folder), "--", *command]
    process = subprocess.Popen(words)
    wait_until(lambda: process.poll() is not None or bool(node.pids()))
    return process


def test_a_failed_start_stops_no_node_that_another_process_started(
    other: FileLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = other.path.parent
    monkeypatch.setattr(Node, "spawn", lambda node, _: supervised(node, "false"))
    with raises("broker_node_ended", UnavailableError):
        EmbeddedKafka(root).start()
    assert [node.is_running for node in nodes(root)] == [True, False]


def test_a_failed_start_ends_a_supervisor_that_has_no_lock_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state.json is that of an earlier supervisor, whose id another process has now."""
    monkeypatch.setattr(Node, "prepare", lambda *_: None)
    known = {"id": "E", "ports": [broker_node.free_ports(2), broker_node.free_ports(2)]}
    (tmp_path / "cluster.json").write_text(json.dumps(known))
    (tmp_path / "node-1").mkdir()
    spawned = []

    def spawn(node: Node, _options: object) -> subprocess.Popen[bytes]:
        if node.number == 2:
            raise OSError("the disk is full")
        spawned.append(subprocess.Popen(["sleep", "60"]))
        return spawned[0]

    monkeypatch.setattr(Node, "spawn", spawn)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        state = {supervisor.SUPERVISOR: stranger.pid, supervisor.BROKER: stranger.pid}
        (tmp_path / "node-1" / "state.json").write_text(json.dumps(state))
        with pytest.raises(OSError, match="the disk is full"):
            EmbeddedKafka(tmp_path).start()
        assert [each.poll() for each in spawned] == [-signal.SIGTERM]
        assert stranger.poll() is None
        stranger.kill()


def test_nodes_of_another_unix_user_end_by_their_own_supervisors(
    other: FileLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = other.path.parent
    kafka = EmbeddedKafka(root)
    monkeypatch.setattr(Node, "spawn", lambda node, _: supervised(node, "sleep", "60"))
    monkeypatch.setattr(embedded_kafka, "live_brokers", lambda _port: frozenset({1, 2}))
    kafka.start()
    other.close()

    def kill(_pid: int, _number: int) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", kill)
        kafka.stop()
    wait_until(lambda: not any(node.is_running for node in nodes(root)))
