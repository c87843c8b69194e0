"""Offset ranges read by each kind of login, after a login expired, and without the right to."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from support.kafka import kafka_io
from support.kafka.varied_topics import expected, ranges_of, read_ranges
from support.security import SESSION_MS, Right, SecuredKafka, secured_kafka

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError
from eos.kafka.client import KafkaClient
from eos.kafka.exclusive_connection import ExclusiveConnection
from eos.kafka.range_fetcher import Range
from eos.kafka.settings import KafkaSettings

BY_CERTIFICATE = "CN=reader"
Security = dict[str, str]
LOGINS: dict[str, Callable[[SecuredKafka], tuple[str, Security]]] = {
    "SCRAM over TLS": lambda on: (on.login, dict(on.security())),
    "PLAIN over TLS": lambda on: (on.login, dict(on.security(sasl_mechanism="PLAIN"))),
    "SCRAM": lambda on: (on.open, without_tls(on)),
    "certificate": lambda on: (
        on.mutual,
        {
            "security_protocol": "SSL",
            "ssl_cafile": str(on.ca.certificate),
            "ssl_certfile": str(on.ca.folder / "reader.pem"),
        },
    ),
}


def without_tls(on: SecuredKafka) -> Security:
    return dict(on.security(security_protocol="SASL_PLAINTEXT", ssl_cafile=""))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("logins")) as made:
        made.ca.sign("reader")
        yield made


@pytest.fixture(scope="module")
def ranges(secured: SecuredKafka) -> list[Range]:
    """Of a topic that two users may read: several responses of 200 kB."""
    name, bootstrap = f"logins-{uuid.uuid4().hex[:8]}", secured.broker.bootstrap
    kafka_io.create_topics(bootstrap, 2, name)
    writer = kafka_io.producer(bootstrap, {"batch.size": 50_000})
    for number in range(4_000):
        writer.produce(name, b"%d." % number * 60, b"%d" % number)
    assert writer.flush(300) == 0
    for user in ({}, {"user": BY_CERTIFICATE}):
        secured.grant([Right("--topic", name, "Read")], **user)
    return ranges_of(bootstrap, [name])


def client_to(address: str, security: Security) -> KafkaClient:
    return KafkaClient(KafkaSettings((address,), security=tuple(security.items())))


@pytest.mark.long
@pytest.mark.parametrize("login", LOGINS)
def test_each_kind_of_login_reads(secured: SecuredKafka, ranges: list[Range], login: str) -> None:
    rows = expected(secured.broker.bootstrap, ranges)
    with closing(client_to(*LOGINS[login](secured))) as client:
        for _ in range(2):
            assert read_ranges(client, ranges, fetch_bytes=200_000) == rows


@pytest.mark.long
def test_a_connection_whose_login_expires_is_replaced(
    secured: SecuredKafka, ranges: list[Range], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where logins don't expire, so that the broker closes no connection by itself."""
    made: list[ExclusiveConnection] = []
    lost: list[object] = []
    with closing(client_to(*LOGINS["SCRAM over TLS"](secured))) as client:
        exclusive = client._connections.exclusive
        connect = exclusive._connect

        def noted(*args: object) -> ExclusiveConnection:
            made.append(connect(*args))
            return made[-1]

        monkeypatch.setattr(exclusive, "_connect", noted)
        monkeypatch.setattr(client._cluster, "lost", lost.append)
        rows = expected(secured.broker.bootstrap, ranges)
        assert read_ranges(client, ranges, fetch_bytes=200_000) == rows
        made[0]._expires_at = time.monotonic()
        assert read_ranges(client, ranges, fetch_bytes=200_000) == rows  # it was not kept
        pieces = client.fetch_ranges(ranges, fetch_bytes=200_000).pieces()
        next(pieces)
        made[1]._expires_at = time.monotonic()  # between two requests
        assert sum(1 for _ in pieces) > 2
    assert len(made) == 3
    assert lost == []


def test_the_broker_says_when_a_login_expires(secured: SecuredKafka, ranges: list[Range]) -> None:
    with closing(client_to(secured.open, without_tls(secured))) as client:
        soon = Deadline.after_ms(120_000)
        leader = client.leaders([ranges[0].partition], soon)[ranges[0].partition]
        began = time.monotonic()
        connection = client._connections.exclusive.take(leader, 1, 12, soon)
        assert began < connection._expires_at < time.monotonic() + SESSION_MS / 1000
        connection.close()


def test_a_reader_without_the_right_is_refused_with_the_command_that_grants_it(
    secured: SecuredKafka,
) -> None:
    name = f"secret-{uuid.uuid4().hex[:8]}"
    kafka_io.create_topics(secured.broker.bootstrap, 1, name)
    kafka_io.fill(secured.broker.bootstrap, name, range(10))
    secured.grant([Right("--topic", name, "Describe")])
    ranges = ranges_of(secured.broker.bootstrap, [name])
    with (
        closing(client_to(*LOGINS["SCRAM over TLS"](secured))) as client,
        pytest.raises(KafkaRefusedError) as caught,
    ):
        read_ranges(client, ranges)
    assert caught.value.code == "kafka_topic_authorization_failed"
    assert f"lacks READ on Topic '{name}'" in caught.value.message
    assert f"--operation Read --topic {name}" in caught.value.hint
