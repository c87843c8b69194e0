"""Another cluster for the source: its keys, its plan, and the mirror of the group's offsets."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.errors import raises

import eos
from eos.api.kafka import as_profile
from eos.config.load import load_pipeline, load_profile
from eos.config.model import ProfileFile
from eos.config.secrets import secret_variables
from eos.deadline import Deadline
from eos.errors import UnavailableError, UsageError
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.ledger.record import Ends
from eos.observe import events
from eos.plan.plan import Plan, plan
from eos.plan.security import naming_principal
from eos.replay.replayer import put_back
from eos.startup.source_state import source_client, source_of
from eos.transaction.group_mirror import GroupMirror

TEXT = """\
version: 1
name: orders
source: {{kafka: {{topic: orders{cluster}}}}}
sink: {{kafka: {{topic: {target}}}}}
"""
PROFILE = """\
kafka: {bootstrap: "target:9092"}
clusters:
  east:
    bootstrap: "east-1:9092,east-2:9092"
    security: {protocol: SASL_SSL, mechanism: PLAIN, user: reader, password: "${EAST}"}
    client: {client.id: across}
  west: {bootstrap: "west:9092"}
"""
AT = TopicPartition("orders", 0)


def profile_in(folder: Path, text: str = PROFILE) -> ProfileFile:
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "two.yaml").write_text(text)
    return load_profile("two", folder, {"EAST": "secret"})


def planned(folder: Path, cluster: str = "", target: str = "clean") -> Plan:
    text = TEXT.format(cluster=f", cluster: {cluster}" if cluster else "", target=target)
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return plan(load_pipeline(path, {}), profile_in(folder), ("target:9092",), ())


def test_the_source_has_the_connection_of_the_named_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAST", "secret")
    found = planned(tmp_path, "east")
    connection = found.source_connection
    assert connection.bootstrap == ("east-1:9092", "east-2:9092")
    assert (connection.kafka.client_id, found.kafka.client_id) == ("across", "eos")
    options = source_of(found, {})
    assert options.bootstrap == "east-1:9092,east-2:9092"
    assert options.client["security.protocol"] == "SASL_SSL"
    assert not found.commits_group
    client = KafkaClient(found.kafka)
    other = source_client(found, client)
    assert other.settings == connection.kafka
    assert other is source_client(found, client)
    client.close()
    assert other.closed


def test_without_a_name_there_is_one_cluster_and_one_client(tmp_path: Path) -> None:
    found = planned(tmp_path)
    assert found.source_connection.kafka == found.kafka
    assert found.commits_group
    client = KafkaClient(found.kafka)
    assert source_client(found, client) is client
    client.close()


def test_an_unknown_cluster_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with raises("source_cluster_unknown", UsageError) as caught:
        planned(tmp_path, "easst")
    assert "did you mean `east`?" in caught.value.message
    assert "east, west" in caught.value.hint


def test_one_name_on_both_clusters_is_no_loop(tmp_path: Path) -> None:
    assert planned(tmp_path, "west", "orders").topics_written_beside_source == ()
    with raises("config_invalid", UsageError) as caught:
        planned(tmp_path, target="orders")
    assert "that the source does not read" in caught.value.message


def test_a_clusters_password_stays_a_secret(tmp_path: Path) -> None:
    profile = profile_in(tmp_path)
    security = profile.clusters["east"].security
    assert security is not None
    assert "secret" not in str(security.password)
    assert secret_variables(profile) == {"EAST"}
    path = tmp_path / "pipeline.yaml"
    path.write_text(TEXT.format(cluster="", target='"${EAST}"'))
    with raises("config_invalid", UsageError) as caught:
        plan(load_pipeline(path, {"EAST": "secret"}), profile, ("a:1",), ())
    assert "`clusters.east.security.password`" in caught.value.message


def test_a_principal_is_named_only_if_both_clusters_have_it(tmp_path: Path) -> None:
    profile = profile_in(tmp_path)
    reader = profile.clusters["east"].security
    error = UnavailableError("refused", "The principal may not", hint="grant it to User:PRINCIPAL")
    with pytest.raises(UnavailableError) as both, naming_principal(reader, reader):
        raise error
    assert "User:reader" in both.value.hint
    with pytest.raises(UnavailableError) as one, naming_principal(None, reader):
        raise error
    assert one.value is error


def test_a_job_declares_its_other_cluster_as_a_file_does() -> None:
    source = eos.Kafka("east:9092", client={"client.id": "x"}, registry={"url": "http://a"})
    target = eos.Kafka("target:9092")
    spark: Any = None
    stream = eos.read_kafka(spark, "orders", kafka=source)
    job = eos.Job(stream, "orders", target=target).to_topic("orders")
    job.check()
    assert job.declared()["source"]["kafka"]["cluster"] == "source"
    assert json.loads(json.dumps(as_profile("orders", source, target))) == {
        "kafka": {"bootstrap": "target:9092"},
        "clusters": {"source": {"bootstrap": "east:9092", "client": {"client.id": "x"}}},
        "registry": {"url": "http://a"},
    }
    assert "cluster" not in eos.Job(stream, "orders", target=source).declared()["source"]["kafka"]
    other = eos.Kafka("target:9092", registry={"url": "http://b"})
    with raises("job_registries_differ", UsageError):
        as_profile("orders", source, other)


class Broker:
    """Gets the offsets of a group. While `is_down`, it refuses them; until `free`, it waits."""

    def __init__(self) -> None:
        self.sent: list[Ends] = []
        self.is_down = False
        self.free = threading.Event()
        self.free.set()
        self.asked = threading.Semaphore(0)

    def commit_group_offsets(self, _group: str, offsets: Ends, _deadline: Deadline) -> None:
        self.asked.release()
        assert self.free.wait(60)
        if self.is_down:
            raise UnavailableError("down", "no broker of east:9092 answers")
        self.sent.append(offsets)


def mirror_of(broker: Broker) -> tuple[GroupMirror, list[str]]:
    warned: list[str] = []

    def emit(event: events.Event) -> None:
        assert isinstance(event, events.Warned)
        warned.append(event.message)

    bus: Any = SimpleNamespace(emit=emit)
    return GroupMirror(broker, "eos.orders", "east", bus), warned


def test_a_commit_waits_for_no_mirror_and_the_newest_ends_are_sent_last() -> None:
    broker = Broker()
    mirror, warned = mirror_of(broker)
    broker.free.clear()
    for end in range(1, 6):
        mirror.committed({AT: end})
    assert broker.asked.acquire(timeout=60)  # the first one is being sent
    mirror.committed({AT: 6})
    broker.free.set()
    mirror.close()
    assert broker.sent[-1] == {AT: 6}
    assert len(broker.sent) <= 3
    assert mirror.in_transaction({AT: 6}) == {}
    assert warned == []


def test_an_outage_is_one_warning_and_the_next_commit_repeats() -> None:
    broker = Broker()
    mirror, warned = mirror_of(broker)

    def commit(end: int, *, is_down: bool) -> None:
        broker.is_down = is_down
        mirror.committed({AT: end})
        assert broker.asked.acquire(timeout=60)

    commit(1, is_down=True)
    commit(2, is_down=True)
    mirror.close()
    assert len(warned) == 1
    assert "cluster east" in warned[0]
    assert broker.sent == []

    again, warned = mirror_of(broker)
    broker.is_down = False
    again.committed({AT: 3})
    again.close()
    assert broker.sent == [{AT: 3}]
    assert warned == []


def test_a_run_without_a_commit_ends_at_once() -> None:
    mirror, _ = mirror_of(Broker())
    mirror.close()


def test_dead_letters_of_another_cluster_are_not_replayed(tmp_path: Path) -> None:
    topic: Any = SimpleNamespace(planned=planned(tmp_path, "east"))
    with raises("replay_other_cluster", UsageError):
        put_back(topic, topic, topic, topic)
