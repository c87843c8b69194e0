"""Properties of both Kafka clients in a profile: which are accepted, and what each client gets."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from support import doubles

from eos.config.client_properties import NAMES
from eos.config.load import load_profile
from eos.config.model import ProfileFile
from eos.errors import UsageError
from eos.kafka.client_options import connection_options
from eos.kafka.settings import KafkaSettings
from eos.plan.security import kafka_settings
from eos.startup.source_state import source_of

EACH = {
    "client.id": "team-a",
    "connections.max.idle.ms": "60000",
    "reconnect.backoff.ms": "200",
    "reconnect.backoff.max.ms": "5000",
    "receive.buffer.bytes": "1048576",
    "send.buffer.bytes": "2097152",
    "ssl.endpoint.identification.algorithm": "",
}


def load(tmp_path: Path, client: str) -> ProfileFile:
    path = tmp_path / "a.yaml"
    path.write_text(f"kafka: {{bootstrap: 'a:1', client: {{{client}}}}}\n")
    return load_profile(str(path), tmp_path, {})


def test_both_clients_get_each_property(tmp_path: Path) -> None:
    client = load(tmp_path, ", ".join(f"{k}: {v or repr(v)}" for k, v in EACH.items())).kafka.client
    assert client == EACH
    assert set(EACH) == set(NAMES), "a property is not tested"
    assert source_of(replace(doubles.plan(), client=client), {}).client == EACH
    settings = kafka_settings(("a:1",), None, client)
    assert settings.client_id == "team-a"
    options = connection_options(settings)
    buffers = options.pop("socket_options")
    assert (socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20) in buffers
    assert (socket.SOL_SOCKET, socket.SO_SNDBUF, 2 << 20) in buffers
    assert options == {
        "connections_max_idle_ms": 60_000,
        "reconnect_backoff_ms": 200,
        "reconnect_backoff_max_ms": 5_000,
        "ssl_check_hostname": False,
    }


def test_without_properties_both_clients_have_their_defaults() -> None:
    settings = kafka_settings(("a:1",), None)
    assert settings == KafkaSettings(("a:1",))
    assert list(connection_options(settings)) == ["socket_options"]
    assert source_of(doubles.plan(), {}).client == {}
    with pytest.raises(ValueError, match="unknown property acks"):
        connection_options(replace(settings, properties=(("acks", "1"),)))


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("isolation.level: read_uncommitted", "exactly-once needs the value"),
        ("group.id: a", "exactly-once needs the value"),
        ("bootstrap.servers: a", "`kafka.bootstrap`"),
        ("sasl.mechanism: PLAIN", "see `kafka.security`"),
        ("client.rack: a", "only one of the two clients has it"),
        ("request.timeout.ms: 1", "the limits of a transaction depend on it"),
        ("conections.max.idle.ms: 1", "did you mean `connections.max.idle.ms`"),
        ("send.buffer.bytes: 1", "from 4,096 to 67,108,864, got `1`"),
        ("reconnect.backoff.ms: -1", "from 1 to 10,000, got `-1`"),
        ("client.id: 'a b'", "letters, digits"),
        ("ssl.endpoint.identification.algorithm: none", "expected `ssl.endpoint"),
    ],
)
def test_a_property_that_one_client_lacks_is_refused(
    tmp_path: Path, client: str, text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, client)
    assert text in str(caught.value)
    assert "a.yaml:1:" in str(caught.value)
