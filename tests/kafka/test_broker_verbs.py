"""`eos broker` as a user calls it: a broker that stays, in a project folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from support.kafka.kafka_io import create_topics

from eos.deadline import Deadline
from eos.kafka.api import TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.local.broker_node import HOST, free_ports
from eos.local.broker_probe import live_brokers
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction.coordinator import Coordinator

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Project:
    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "elsewhere" / "broker"

    def eos(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Returns only if nothing that it leaves behind holds its output open."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("EOS_")}
        return subprocess.run(
            [sys.executable, "-m", "eos", "broker", *words],
            env={**inherited, "PYTHONPATH": str(CHECKOUT)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def told(self, *words: str, code: int = 0) -> str:
        """What it says on stdout, in one line."""
        done = self.eos(*words)
        assert (done.returncode, done.stderr) == (code, "")
        return done.stdout.removesuffix("\n")

    def running(self, port: int) -> str:
        return f"running at {HOST}:{port}, until it is stopped; data in {self.root}"

    @property
    def stopped(self) -> str:
        return f"stopped; data in {self.root}"

    def pids(self, node: int = 1) -> dict[str, int]:
        state = self.root / f"node-{node}" / "state.json"
        found: dict[str, int] = json.loads(state.read_text())
        return found

    def processes(self) -> set[int]:
        """Everything on this machine whose command line names the data folder."""
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            if str(self.root).encode() in command:
                found.add(int(process.name))
        return found


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "local.yaml").write_text('state: {root: "elsewhere"}\n')
    made = Project(tmp_path.resolve())
    yield made
    made.eos("stop")
    assert made.processes() == set()


def test_from_start_to_stop_and_again(project: Project) -> None:
    (port,) = free_ports(1)
    assert project.told("status", code=1) == project.stopped

    assert project.told("start", "--port", str(port)) == project.running(port)
    assert live_brokers(port) == {1}
    pids = project.pids()
    assert project.processes() == set(pids.values())
    assert project.told("status") == project.running(port)
    create_topics(f"{HOST}:{port}", 2, "kept")

    assert project.told("start") == project.running(port)
    assert project.told("start", "--port", str(port)) == project.running(port)
    other = project.eos("start", "--port", str(free_ports(1)[0]))
    assert (other.returncode, other.stdout) == (2, "")
    assert f"already runs on port {port}" in other.stderr
    assert "`eos broker stop`" in other.stderr
    assert project.pids() == pids
    assert live_brokers(port) == {1}

    assert project.told("stop") == project.stopped
    assert project.processes() == set()
    assert project.told("status", code=1) == project.stopped
    assert project.told("stop") == project.stopped

    # Of all free ports the one that would collide: its own controller's, as written down.
    (known,) = json.loads((project.root / "cluster.json").read_text())["ports"]
    assert known[0] == port
    moved = known[1]
    assert project.told("start", "--port", str(moved)) == project.running(moved)
    assert live_brokers(moved) == {1}
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{moved}"})
    assert len(admin.list_topics(timeout=180).topics["kept"].partitions) == 2


def test_stop_waits_for_no_pipeline_and_ends_none(project: Project) -> None:
    with EmbeddedKafka(project.root) as used:
        port = used.nodes[0].ports.client
        lent = f"running at {HOST}:{port}, until the last pipeline ends; data in "
        assert project.told("status").startswith(lent)
        assert project.told("start") == project.running(port)
        assert project.told("stop").startswith(lent)
        assert live_brokers(port) == {1}
    assert project.processes() == set()
    assert json.loads(project.told("status", "--json", code=1)) == {
        "running": False,
        "nodes": 1,
        "down": [1],
        "bootstrap": "",
        "kept": False,
        "folder": str(project.root),
        "version": "4.3",
    }


def test_after_a_crash_stop_still_takes_back_that_it_was_to_stay(project: Project) -> None:
    """Else the next pipeline's broker would stay for ever, against the user's last word."""
    project.root.mkdir(parents=True)
    (project.root / "keep").touch()  # what a `start` leaves when the machine goes down
    assert project.told("stop") == project.stopped
    assert not json.loads(project.told("status", "--json", code=1))["kept"]


@pytest.mark.nightly
def test_three_nodes_from_start_to_stop_with_one_that_dies(project: Project) -> None:
    started = project.told("start", "--nodes", "3")
    found = json.loads(project.told("status", "--json"))
    assert found["running"]
    assert (found["nodes"], found["down"]) == (3, [])
    assert started.startswith(f"running at {found['bootstrap']}, until it is stopped")
    addresses = found["bootstrap"].split(",")
    ports = [int(address.rpartition(":")[2]) for address in addresses]
    assert [live_brokers(port) for port in ports] == 3 * [{1, 2, 3}]
    check_replicas(found["bootstrap"])

    os.kill(project.pids(2)["broker_pid"], signal.SIGKILL)
    while not (found := json.loads(project.eos("status", "--json").stdout))["down"]:
        pass  # each look starts a Python: no pause is needed
    assert (found["running"], found["down"]) == (False, [2])
    assert found["bootstrap"] == f"{addresses[0]},{addresses[2]}"
    assert "down: node 2 of 3; `eos broker start`" in project.told("status", code=1)
    other = project.eos("start", "--nodes", "1")
    assert (other.returncode, other.stdout) == (2, "")
    assert "eos: [broker_nodes_mismatch] " in other.stderr
    with EmbeddedKafka(project.root) as used:  # as a pipeline of this profile
        assert used.bootstrap == ",".join(addresses)
        assert live_brokers(ports[1]) == {1, 2, 3}
        used.kill(3)
    assert project.told("stop") == project.stopped
    assert project.processes() == set()


def check_replicas(bootstrap: str) -> None:
    """Of the topics that Kafka makes by itself, and of one that says nothing about it."""
    client = KafkaClient(KafkaSettings(tuple(bootstrap.split(","))), TransactionProfile.TV2)
    topics = ["__transaction_state", "__consumer_offsets", "said-nothing"]
    with closing(client):
        deadline = Deadline.after_ms(300_000)
        create_topics(bootstrap, 2, "said-nothing", replication=-1)
        coordinator = Coordinator(client, "id", "group", 60_000)
        coordinator.fence(deadline)
        assert client.committed_offsets("group", deadline) == {}
        in_sync = {client.topic_config(name, "min.insync.replicas", deadline) for name in topics}
    assert in_sync == {"2"}
    known = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=180).topics
    for name in topics:
        replicas = [sorted(one.replicas) for one in known[name].partitions.values()]
        assert replicas == [[1, 2, 3]] * len(replicas)


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http"])
def test_a_port_that_is_none_is_refused(project: Project, port: str) -> None:
    done = project.eos("start", "--port", port)
    assert (done.returncode, done.stdout) == (2, "")
    assert "argument --port: expected a number from 1 to 65535, got" in done.stderr
    assert not project.root.exists()


def test_a_version_that_is_not_there_or_not_the_datas_is_refused(project: Project) -> None:
    unknown = project.eos("start", "--version", "2.8")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "eos: [broker_version_unknown] " in unknown.stderr
    assert "4.3, 4.0, 3.9, 3.6" in unknown.stderr

    project.root.mkdir(parents=True, exist_ok=True)
    known = {"id": "x", "ports": [[1, 2]], "version": "3.9"}
    (project.root / "cluster.json").write_text(json.dumps(known))
    other = project.eos("start", "--version", "4.3")
    assert other.returncode == 2
    assert "eos: [broker_version_mismatch] " in other.stderr
    assert json.loads(project.told("status", "--json", code=1))["version"] == "3.9"
