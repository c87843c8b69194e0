"""Who may come in: SCRAM and PLAIN over TLS, and certificates. And what is said to whom may not:
one sentence at once, that names the broker, how we came, the likely cause and the way out."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from support.security import PASSWORD, SecuredKafka, secured_kafka
from support.waiting import wait_until

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, UnavailableError
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings

Security = dict[str, str]
SET = AlterConfigOpType.SET


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("logins")) as made:
        made.ca.sign("client")
        made.ca.sign("expired-client", days=-1)
        made.other_ca.sign("stranger")
        yield made


def mutual(secured: SecuredKafka, certificate: Path | None) -> Security:
    found = {"security_protocol": "SSL", "ssl_cafile": str(secured.ca.certificate)}
    return found | ({"ssl_certfile": str(certificate)} if certificate else {})


@contextmanager
def client_to(address: str, security: Security) -> Iterator[KafkaClient]:
    client = KafkaClient(KafkaSettings((address,), security=tuple(security.items())))
    try:
        yield client
    finally:
        client.close()


def refused(address: str, security: Security) -> KafkaRefusedError:
    """Long before the deadline: nothing was tried again until then."""
    deadline = Deadline.after_ms(300_000)
    with client_to(address, security) as client, pytest.raises(KafkaRefusedError) as caught:
        client.transaction_version(deadline)
    assert deadline.left_ms > 60_000
    error = caught.value
    assert address in error.message
    assert "\n" not in error.message
    assert error.hint
    assert PASSWORD not in str(error)
    return error


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_user_with_the_right_password_comes_in(secured: SecuredKafka, mechanism: str) -> None:
    security = dict(secured.security(sasl_mechanism=mechanism))
    with client_to(secured.login, security) as client:
        assert client.transaction_version(Deadline.after_ms(300_000)) == 2


def test_a_login_is_repeated_on_the_same_connection_while_requests_go_on(
    secured: SecuredKafka,
) -> None:
    """The broker hangs up on who asks something after his time without having done so."""
    with client_to(secured.open, without_tls(secured)) as client:
        deadline = Deadline.after_ms(300_000)
        client.transaction_version(deadline)
        (lane,) = client._connections._channels.values()
        connection, at = lane.connection, lane.connection._reauth.authenticated_at
        while at == connection._reauth.authenticated_at:
            assert not deadline.has_passed
            client.transaction_version(deadline)
            if lane.connection is not connection:  # a machine that stalled: watch the next one
                connection, at = lane.connection, lane.connection._reauth.authenticated_at
        client.transaction_version(deadline)


def test_the_check_of_the_brokers_name_can_be_left_out(secured: SecuredKafka) -> None:
    address = secured.login.replace("127.0.0.1", "localhost")
    unchecked = (("ssl.endpoint.identification.algorithm", ""), ("receive.buffer.bytes", "8192"))
    with closing(
        KafkaClient(KafkaSettings((address,), "me", secured.security(), properties=unchecked))
    ) as client:
        assert client.transaction_version(Deadline.after_ms(300_000)) == 2
        (lane,) = client._connections._channels.values()
        sock = lane.connection.transport._sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 8192  # Linux doubles it


def without_tls(secured: SecuredKafka) -> Security:
    return dict(secured.security(security_protocol="SASL_PLAINTEXT", ssl_cafile=""))


def test_a_login_without_tls(secured: SecuredKafka) -> None:
    security = without_tls(secured)
    with client_to(secured.open, security) as client:
        assert client.transaction_version(Deadline.after_ms(300_000)) == 2
    error = refused(secured.open, security | {"sasl_plain_password": "wrong"})
    assert error.code == "sasl_authentication_failed"
    assert "eos by SCRAM-SHA-512 over SASL_PLAINTEXT" in error.message


@pytest.mark.parametrize("is_one_file", [True, False])
def test_a_certificate_comes_in_from_one_file_or_two(
    secured: SecuredKafka, is_one_file: bool
) -> None:
    security = mutual(secured, secured.ca.folder / "client.pem")
    if not is_one_file:
        security["ssl_certfile"] = str(secured.ca.folder / "client.crt")
        security["ssl_keyfile"] = str(secured.ca.folder / "client.key")
    with client_to(secured.mutual, security) as client:
        assert client.transaction_version(Deadline.after_ms(300_000)) == 2


WRONG: dict[str, tuple[Callable[[SecuredKafka], tuple[str, Security]], str, str]] = {
    "password by SCRAM": (
        lambda on: (on.login, dict(on.security(sasl_plain_password="wrong"))),
        "sasl_authentication_failed",
        "eos by SCRAM-SHA-512 over SASL_SSL",
    ),
    "password by PLAIN": (
        lambda on: (
            on.login,
            dict(on.security(sasl_plain_password="wrong", sasl_mechanism="PLAIN")),
        ),
        "sasl_authentication_failed",
        "eos by PLAIN over SASL_SSL",
    ),
    "user": (
        lambda on: (on.login, dict(on.security(sasl_plain_username="nobody"))),
        "sasl_authentication_failed",
        "nobody by SCRAM-SHA-512",
    ),
    "mechanism": (
        lambda on: (on.login, dict(on.security(sasl_mechanism="SCRAM-SHA-256"))),
        "sasl_mechanism_unsupported",
        "SCRAM-SHA-256",
    ),
    "authority": (
        lambda on: (on.login, dict(on.security(ssl_cafile=str(on.other_ca.certificate)))),
        "broker_certificate_untrusted",
        "other-ca/ca.pem",
    ),
    "no authority": (
        lambda on: (on.login, dict(on.security(ssl_cafile=""))),
        "broker_certificate_untrusted",
        "unable to get local issuer certificate",
    ),
    "expired broker": (
        lambda on: (on.expired, mutual(on, None)),
        "broker_certificate_expired",
        "certificate has expired",
    ),
    "expired client": (
        lambda on: (on.mutual, mutual(on, on.ca.folder / "expired-client.pem")),
        "client_certificate_rejected",
        "expired-client.pem",
    ),
    "stranger": (
        lambda on: (on.mutual, mutual(on, on.other_ca.folder / "stranger.pem")),
        "client_certificate_rejected",
        "stranger.pem",
    ),
    "no certificate": (
        lambda on: (on.mutual, mutual(on, None)),
        "client_certificate_missing",
        "kafka.security.certificate",
    ),
    "login where none is": (
        lambda on: (
            on.mutual,
            dict(on.security(ssl_certfile=str(on.ca.folder / "client.pem"))),
        ),
        "listener_without_login",
        "the port of another listener",
    ),
    "no TLS": (
        lambda on: (on.login, {}),
        "listener_requires_tls",
        "PLAINTEXT",
    ),
    "name": (
        lambda on: (on.login.replace("127.0.0.1", "localhost"), dict(on.security())),
        "broker_certificate_name_mismatch",
        "Hostname mismatch",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_who_may_not_come_in_is_told_at_once(secured: SecuredKafka, wrong: str) -> None:
    make, code, text = WRONG[wrong]
    error = refused(*make(secured))
    assert error.code == code
    assert text in str(error)


@pytest.mark.parametrize(
    "how", ["login is missing", pytest.param("there is no TLS", marks=pytest.mark.long)]
)
def test_another_kind_of_port_is_tried_until_the_deadline_and_named(
    secured: SecuredKafka, how: str
) -> None:
    """A broker that starts hangs up as well, so this may pass."""
    address, security = {
        "login is missing": (secured.login, mutual(secured, None)),
        "there is no TLS": (secured.broker.bootstrap, mutual(secured, None)),
    }[how]
    with client_to(address, security) as client, pytest.raises(UnavailableError) as caught:
        client.transaction_version(Deadline.after_ms(4_000))
    assert f"no broker of {address} answers" in caught.value.message
    assert "TLS" in caught.value.hint


def present(secured: SecuredKafka, days: int) -> None:
    """The broker shows new clients a certificate of so many days from now on. It goes on running,
    and accepts another file with the same name in it."""
    certificate = secured.ca.folder / f"broker.{days}.pem"
    secured.ca.sign("broker", days).rename(certificate)
    name = "listener.name.mutual.ssl.keystore.location"
    changed = ConfigResource(
        ResourceType.BROKER,
        "1",
        incremental_configs=[ConfigEntry(name, str(certificate), incremental_operation=SET)],
    )
    (done,) = secured.admin.incremental_alter_configs([changed]).values()
    done.result(180)


def comes_in(secured: SecuredKafka) -> bool:
    with client_to(secured.mutual, mutual(secured, secured.ca.folder / "client.pem")) as client:
        try:
            return client.transaction_version(Deadline.after_ms(300_000)) == 2
        except KafkaRefusedError as error:
            if error.code != "broker_certificate_expired":
                raise
            return False


def test_a_certificate_that_expires_in_flight_ends_new_connections_alone(
    secured: SecuredKafka,
) -> None:
    security = mutual(secured, secured.ca.folder / "client.pem")
    deadline = Deadline.after_ms(300_000)
    with client_to(secured.mutual, security) as client:
        client.transaction_version(deadline)
        present(secured, -1)
        try:
            wait_until(lambda: not comes_in(secured), "the broker shows its old certificate")
            assert client.transaction_version(deadline) == 2  # its connection was made before
        finally:
            present(secured, 30)
        wait_until(lambda: comes_in(secured), "the broker shows an expired certificate")
