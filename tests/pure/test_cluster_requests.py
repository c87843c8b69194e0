"""Requests to brokers over connections in this process: races, time limits and name lookups."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from eos.deadline import Deadline
from eos.kafka import admin, connection_manager
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


def test_an_address_that_failed_is_tried_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent one takes all the time of an attempt. The resolver's order is kept otherwise."""
    places = [("192.0.2.1", 9092), ("192.0.2.2", 9092), ("2001:db8::1", 9092, 0, 0)]
    found = [(socket.AF_UNSPEC, socket.SOCK_STREAM, 6, "", each) for each in places]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: list(found))
    monkeypatch.setattr(connection_manager, "_failed_at", {})

    def order() -> list[str]:
        return [each[-1][0] for each in _Socket(DIRECT).dns_lookup("kafka", 9092)]

    class Failing:
        def __init__(self, error: Exception | None) -> None:
            self.error = error

        def setblocking(self, _: bool) -> None: ...

        def connect_ex(self, _: Any) -> int:
            if self.error is not None:
                raise self.error
            return 0

        def close(self) -> None: ...

    def connects(place: tuple[Any, ...], error: Exception | None) -> None:
        with suppress(StopIteration, KafkaConnectionError):
            _Socket(DIRECT).sock_connect(None, Failing(error), place).send(None)

    assert order() == ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
    connects(places[0], OSError(errno.EHOSTUNREACH, "no route"))
    assert order() == ["192.0.2.2", "2001:db8::1", "192.0.2.1"]
    connects(places[1], OSError(errno.EHOSTUNREACH, "no route"))
    assert order() == ["2001:db8::1", "192.0.2.1", "192.0.2.2"]
    connects(places[0], None)
    assert order() == ["192.0.2.1", "2001:db8::1", "192.0.2.2"]
