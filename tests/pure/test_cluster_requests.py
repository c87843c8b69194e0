"""Requests to brokers over connections in this process: races, time limits and name lookups."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from eos.deadline import Deadline
from eos.kafka import admin
from eos.kafka.api import TopicPartition
from eos.kafka.cluster import Cluster
from eos.kafka.connection_manager import DIRECT, _Socket
from eos.kafka.settings import KafkaSettings
from eos.kafka.topic_creation import create_topic

TP = TopicPartition("t", 0)
REQUEST_TIMEOUT_MS = 10_000


class Connections:
    """To a broker that leads the only partition, and carries out each request."""

    brokers = (1,)
    bootstrap_nodes = ("bootstrap-0",)

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def learn(self, _response: object) -> None:
        """The broker is known already."""

    def knows(self, _node: object) -> bool:
        return True

    def call(self, _node: object, request: Any, _deadline: Deadline, **_: object) -> Any:
        self.requests.append(request)
        partition = SimpleNamespace(partition_index=0, error_code=0, leader_id=1, low_watermark=1)
        topic = SimpleNamespace(name="t", error_code=0, partitions=[partition], topic_id=None)
        broker = SimpleNamespace(node_id=1)
        return SimpleNamespace(brokers=[broker], topics=[topic], controller_id=1)


class Interrupted(Cluster):
    """Another thread forgets the leaders right after this one has looked them up."""

    def _refresh_leaders(self, *args: Any) -> Any:
        found = super()._refresh_leaders(*args)
        self.forget_leaders()
        return found


def cluster_of(connections: Any, kind: type[Cluster] = Cluster) -> Cluster:
    settings = KafkaSettings(("b:1",), request_timeout_ms=REQUEST_TIMEOUT_MS)
    return kind(connections, settings)


def soon() -> Deadline:
    return Deadline.after_ms(60_000)


def test_leaders_that_another_thread_forgets_meanwhile_are_returned() -> None:
    assert cluster_of(Connections(), Interrupted).leaders([TP], soon()) == {TP: 1}


def test_a_broker_answers_a_change_before_the_client_gives_up() -> None:
    """Otherwise the client would close the connection, and lose the other requests on it."""
    connections = Connections()
    cluster = cluster_of(connections)
    create_topic(cluster, "t", 1, 1, {}, soon())
    admin.delete_records(cluster, {TP: 1}, soon())
    limits = {
        each.name: each.timeout_ms for each in connections.requests if hasattr(each, "timeout_ms")
    }
    assert set(limits) == {"CreateTopicsRequest", "DeleteRecordsRequest"}
    assert all(0 < each <= REQUEST_TIMEOUT_MS * 9 // 10 for each in limits.values())


def test_each_address_of_a_host_name_is_the_first_one_to_be_tried_at_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses = ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: list(addresses))
    found = [_Socket(DIRECT).dns_lookup("kafka", 9092) for _ in range(200)]
    assert {each[0] for each in found} == set(addresses)
    assert all(sorted(each) == addresses for each in found)
