"""The embedded cluster: shared while it is used, gone with its last user, and a number of nodes."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.errors import raises
from support.kafka.kafka_io import fill_topic
from support.waiting import wait_until

from eos import private_files
from eos.errors import UnavailableError, UsageError
from eos.local import broker_node, embedded_kafka
from eos.local.broker_probe import live_brokers
from eos.local.cluster_status import status_of
from eos.local.embedded_kafka import EmbeddedKafka
from eos.local.file_locks import FileLock, is_held

USER = """\
import sys, time
from pathlib import Path
from eos.local.embedded_kafka import EmbeddedKafka
kafka = EmbeddedKafka(Path(sys.argv[1]))
kafka.start()
print(kafka.bootstrap, flush=True)
time.sleep(900)
"""


def pids(kafka: EmbeddedKafka) -> list[int]:
    return [pid for one in kafka.nodes for pid in one.pids().values()]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def other_user(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that started the cluster in `tmp_path`, and its bootstrap."""
    command = [sys.executable, "-c", USER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()
    wait_until(
        lambda: not is_held(tmp_path / "node-1" / "lock"), "the cluster outlived its last user"
    )


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(root: Path) -> tuple[set[int], set[int]]:
    """Of its folders, and of its files."""
    there = [(each, stat.S_IMODE(each.stat().st_mode)) for each in [root, *root.rglob("*")]]
    folders = {mode for each, mode in there if each.is_dir()}
    return folders, {mode for each, mode in there if not each.is_dir()}


@pytest.mark.long
@pytest.mark.usefixtures("no_umask")
def test_data_persists_for_this_user_alone_and_the_address_stays(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path) as first:
        address = first.bootstrap
        arguments = ("--bootstrap-server", address, "--topic", "kept", "--partitions", "3")
        made = first.tool("org.apache.kafka.tools.TopicCommand", "--create", *arguments)
        assert made.returncode == 0, made.stderr
    assert not any(map(runs, pids(first)))
    assert modes(tmp_path) == ({0o700}, {0o600})
    with EmbeddedKafka(tmp_path) as second:
        assert second.bootstrap == address
        listed = second.tool(
            "org.apache.kafka.tools.TopicCommand", "--list", "--bootstrap-server", address
        )
        assert listed.stdout.split() == ["kept"]


def test_a_tool_runs_where_no_cluster_is(tmp_path: Path) -> None:
    """As the tests with Kafka in a container need it."""
    tool = EmbeddedKafka(tmp_path / "tools").tool
    assert tool("org.apache.kafka.tools.TopicCommand", "--version").returncode == 0


def test_a_second_user_shares_the_cluster_and_outlives_the_first(
    tmp_path: Path, other_user: tuple[subprocess.Popen[str], str]
) -> None:
    process, bootstrap = other_user
    with EmbeddedKafka(tmp_path) as mine:
        assert mine.bootstrap == bootstrap
        process.kill()
        process.wait()
        # A minder looks for users ten times a second; give it time to be wrong.
        time.sleep(1)
        assert live_brokers(mine.nodes[0].ports.client) == {1}
    assert not mine.nodes[0].is_running


def test_the_cluster_ends_with_a_user_that_is_killed(
    tmp_path: Path, other_user: tuple[subprocess.Popen[str], str]
) -> None:
    state = json.loads((tmp_path / "node-1" / "state.json").read_text())
    process, _ = other_user
    process.kill()
    wait_until(lambda: not any(map(runs, state.values())), f"orphans: {state}")


def test_the_jvm_ends_with_a_minder_that_is_killed(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path) as kafka:
        found = kafka.nodes[0].pids()
        os.kill(found["minder_pid"], signal.SIGKILL)
        wait_until(lambda: not runs(found["broker_pid"]), "the JVM outlived its minder")


def test_what_a_killed_jvm_leaves_is_removed(tmp_path: Path) -> None:
    """A broker unpacks its native library of lz4, and its JVM removes it if it ends by itself.

    The path is one that Java's formats and locales could change."""
    tmp_path = tmp_path / "gr\u00f6\u00dfe \\u0041 \u20ac"
    with EmbeddedKafka(tmp_path) as kafka:
        assert (tmp_path / "node-1/data/meta.properties").exists()
        left = []
        for topic in ("one", "two"):
            fill_topic(kafka.bootstrap, topic, ([b"key"], [b"value" * 20]), 3)
            kafka.kill(1)
            left.append({each.name for each in (tmp_path / "node-1/temporary").glob("*lz4*.so")})
            kafka.restart(1)
    before, after = left
    assert len(before) == len(after) == 1
    assert not before & after


@pytest.mark.long
def test_the_last_user_waits_also_where_a_minder_is_quicker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The minder takes the lock in the moment between our letting go and our own try."""
    kafka = EmbeddedKafka(tmp_path)
    kafka.start()
    running = [pid for pid in pids(kafka) if runs(pid)]
    let_go = FileLock.close

    def overtaken(lock: FileLock) -> None:
        monkeypatch.setattr(FileLock, "close", let_go)
        lock.close()
        # Or it has stopped its node already, and let go.
        users, node_1 = tmp_path / "users", kafka.nodes[0]
        wait_until(lambda: is_held(users) or not node_1.is_running, "the minder noticed nothing")

    monkeypatch.setattr(FileLock, "close", overtaken)
    kafka.stop()
    assert len(running) == 2
    assert not any(map(runs, running))


@pytest.mark.long
def test_of_two_last_users_that_stop_together_one_waits_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one lets go and looks, if it may, before the first one's look is over."""
    first, second = EmbeddedKafka(tmp_path), EmbeddedKafka(tmp_path)
    first.start()
    second.start()
    running = [pid for pid in pids(first) if runs(pid)]
    came, look, take = threading.Event(), FileLock.try_shared, FileLock.try_exclusive

    def stop_second() -> None:
        second.stop()
        came.set()

    other = threading.Thread(target=stop_second)

    def slow(lock: FileLock) -> bool:
        monkeypatch.setattr(FileLock, "try_shared", look)
        found = look(lock)
        other.start()
        assert came.wait(300)
        return found

    def told(lock: FileLock) -> bool:
        is_mine = take(lock)
        if not is_mine and lock.path.name == "stop.lock":
            came.set()
        return is_mine

    monkeypatch.setattr(FileLock, "try_shared", slow)
    monkeypatch.setattr(FileLock, "try_exclusive", told)
    first.stop()
    other.join(300)
    assert len(running) == 2
    assert not any(map(runs, running))


def test_a_kept_cluster_needs_no_user_until_it_is_forgotten(tmp_path: Path) -> None:
    """In a state root that a group shares, its data is for the group, and not for others."""
    private_files.prepare_root(tmp_path / "state", str(os.getgid()))
    root = tmp_path / "state" / "broker"
    kafka = EmbeddedKafka(root)
    kafka.start()
    kafka.keep()
    kafka.stop()
    assert status_of(root).is_running
    with EmbeddedKafka(root) as again:
        again.forget()
    assert not status_of(root).is_running
    assert modes(root) == ({0o2770}, {0o660})


@pytest.mark.long
def test_a_port_that_was_taken_meanwhile_is_chosen_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind((broker_node.HOST, 0))
        taken.listen()
        answers = iter([[taken.getsockname()[1], *broker_node.free_ports(1)]])
        monkeypatch.setattr(
            embedded_kafka,
            "free_ports",
            lambda count: next(answers, None) or broker_node.free_ports(count),
        )
        with EmbeddedKafka(tmp_path) as kafka:
            assert kafka.nodes[0].ports.client != taken.getsockname()[1]
            assert next(answers, None) is None, "the taken port was never tried"


def test_a_port_that_the_caller_named_and_somebody_has_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((broker_node.HOST, 0))
        taken.listen()
        with raises("broker_port_in_use", UsageError):
            EmbeddedKafka(tmp_path, port=taken.getsockname()[1]).start()


def test_a_folder_with_a_comma_is_refused(tmp_path: Path) -> None:
    """Kafka would take its two halves for two folders."""
    with raises("broker_folder_with_comma", UsageError):
        EmbeddedKafka(tmp_path / "a,b").start()


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"id": "x", "ports": [[1, 2]]}))
    with raises("broker_nodes_mismatch", UsageError):
        EmbeddedKafka(tmp_path, nodes=3).start()


def test_a_broker_that_can_not_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path, config={"log.segment.bytes": "a-lot"})
    with raises("broker_format_failed", UnavailableError) as caught:
        kafka.start()
    assert "a-lot" in caught.value.message
    assert not any(one.is_running for one in kafka.nodes)


def test_dump_log_segments_runs_on_the_pinned_jars(broker: EmbeddedKafka, tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000000000.log"
    segment.touch()
    done = broker.tool("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment))
    assert done.returncode == 0, done.stderr
    assert "Log starting offset: 0" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ("org.apache.kafka.tools.TransactionsCommand", "list"),
        ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list"),
        ("org.apache.kafka.tools.FeatureCommand", "describe"),
        ("org.apache.kafka.tools.LogDirsCommand", "--describe"),
    ],
    ids=lambda words: words[0].rpartition(".")[2],
)
def test_the_console_tools_run_on_the_pinned_jars(
    broker: EmbeddedKafka, words: tuple[str, ...]
) -> None:
    name, *rest = words
    done = broker.tool(name, "--bootstrap-server", broker.bootstrap, *rest)
    assert done.returncode == 0, done.stderr
    assert "NoClassDefFound" not in done.stdout + done.stderr


def test_another_version_than_its_data_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps({"id": "x", "ports": [], "version": "3.9"}))
    with raises("broker_version_mismatch", UsageError):
        EmbeddedKafka(tmp_path, version="4.3").start()
    with raises("broker_version_unknown", UsageError):
        EmbeddedKafka(tmp_path / "new", version="2.8").start()


@pytest.mark.long
def test_data_keeps_the_version_that_it_was_made_by(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path, version="3.9") as older, EmbeddedKafka(tmp_path) as user:
        assert user.nodes == older.nodes
        assert (
            "kafka_2.13-3.9"
            in Path(f"/proc/{user.nodes[0].pids()['broker_pid']}/cmdline").read_text()
        )
        assert status_of(tmp_path).version == "3.9"
