"""Logins by token at a real broker, which checks signed tokens by the keys of their issuer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.errors import raises
from support.kafka import kafka_io
from support.kafka.varied_topics import expected, ranges_of, read_ranges
from support.security import Right, SecuredKafka, token_kafka
from support.security.tokens import CLIENT, SECRET, Issuer, TokenEndpoint, token_endpoint
from support.waiting import wait_until

from eos.deadline import Deadline
from eos.errors import EosError, KafkaRefusedError
from eos.kafka.client import KafkaClient
from eos.kafka.connection_manager import _TlsTransport
from eos.kafka.settings import KafkaSettings
from eos.login.http_connection import TlsFiles
from eos.login.msk_signer import MskSigner
from eos.login.token_endpoint import ClientCredentials
from eos.login.tokens import TokenFile, TokenSource, current, last_token

BLOCK = "kafka.security.oauth"


@dataclass(frozen=True)
class TokenKafka:
    secured: SecuredKafka
    issuer: Issuer

    def client(
        self, source: TokenSource, address: str = "", extensions: tuple[tuple[str, str], ...] = ()
    ) -> KafkaClient:
        security = {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "ssl_cafile": str(self.secured.ca.certificate),
        }
        return KafkaClient(
            KafkaSettings(
                (address or self.secured.oauth,),
                security=tuple(security.items()),
                token=source,
                token_extensions=extensions,
            )
        )

    def refused(self, source: TokenSource) -> EosError:
        """Long before the deadline: nothing was tried again until then."""
        deadline = Deadline.after_ms(300_000)
        with closing(self.client(source)) as client, pytest.raises(KafkaRefusedError) as caught:
            client.transaction_version(deadline)
        assert deadline.left_ms > 200_000
        assert self.secured.oauth in caught.value.message
        return caught.value


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenKafka]:
    with token_kafka(tmp_path_factory.mktemp("tokens")) as found:
        yield TokenKafka(*found)


@pytest.fixture
def endpoint(kafka: TokenKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenEndpoint]:
    monkeypatch.setenv("OAUTH_SECRET", SECRET)
    with token_endpoint(kafka.issuer) as made:
        yield made


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that clients send, before TLS encrypts it."""
    found: list[bytes] = []
    write = _TlsTransport.write

    def noted(self: _TlsTransport, data: bytes) -> None:
        found.append(bytes(data))
        write(self, data)

    monkeypatch.setattr(_TlsTransport, "write", noted)
    return found


def of(endpoint: TokenEndpoint) -> ClientCredentials:
    return ClientCredentials(endpoint.url, CLIENT, "${OAUTH_SECRET}", "kafka", TlsFiles(BLOCK))


def file_with(path: Path, token: str) -> TokenFile:
    path.write_text(token)
    return TokenFile(str(path), BLOCK)


@pytest.mark.long
def test_tokens_of_an_endpoint_and_of_a_file(
    kafka: TokenKafka, endpoint: TokenEndpoint, sent: list[bytes], tmp_path: Path
) -> None:
    written = file_with(tmp_path / "token", kafka.issuer.token())
    for source in (of(endpoint), written):
        with closing(kafka.client(source, extensions=(("logicalCluster", "lkc"),))) as client:
            assert client.transaction_version(Deadline.after_ms(300_000)) == 2
    for token in (endpoint.tokens[0], (tmp_path / "token").read_text()):
        assert b"auth=Bearer " + token.encode() in b"".join(sent)
    assert b"\x01logicalCluster=lkc\x01" in b"".join(sent)
    assert len(endpoint.tokens) == 1, "one token for all connections"


@pytest.mark.long
def test_the_tokens_subject_is_the_principal(kafka: TokenKafka, tmp_path: Path) -> None:
    """The reader's own connection logs in, too; before that, the right to read is missing."""
    name, bootstrap = "tokens-read", kafka.secured.broker.bootstrap
    kafka_io.create_topics(bootstrap, 1, name)
    kafka_io.fill(bootstrap, name, range(1000))
    ranges = ranges_of(bootstrap, [name])
    source = file_with(tmp_path / "token", kafka.issuer.token(sub="reader"))
    kafka.secured.grant([Right("--topic", name, "Describe")], user="reader")
    with closing(kafka.client(source)) as client:
        with raises("kafka_topic_authorization_failed"):
            read_ranges(client, ranges)
        kafka.secured.grant([Right("--topic", name, "Read")], user="reader")
        assert read_ranges(client, ranges) == expected(bootstrap, ranges)


def test_a_token_that_has_expired_is_named_with_its_end(kafka: TokenKafka, tmp_path: Path) -> None:
    error = kafka.refused(file_with(tmp_path / "token", kafka.issuer.token(-600)))
    assert error.code == "kafka_token_expired"
    assert "the token expired at 2" in error.message
    assert "renew the token" in error.hint


@pytest.mark.parametrize(
    ("claims", "text"),
    [({"aud": "another"}, "aud another"), ({"iss": "https://else.test"}, "iss https://else.test")],
)
def test_a_token_of_someone_else_is_named_by_its_claims(
    kafka: TokenKafka, tmp_path: Path, claims: dict[str, str], text: str
) -> None:
    token = kafka.issuer.token(**claims)
    error = kafka.refused(file_with(tmp_path / "token", token))
    assert error.code == "kafka_token_rejected"
    assert text in error.message
    assert "sasl.oauthbearer.expected.audience" in error.hint
    assert token.rpartition(".")[2] not in str(error)


def test_a_token_with_another_key_or_none_is_rejected(kafka: TokenKafka, tmp_path: Path) -> None:
    for token, text in ((Issuer().token(), f"sub {CLIENT}"), ("opaque", "without readable claims")):
        error = kafka.refused(file_with(tmp_path / "token", token))
        assert error.code == "kafka_token_rejected"
        assert text in error.message


def test_the_token_of_awss_signer_is_sent(
    kafka: TokenKafka, sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker of AWS's is here: this one rejects the token, which is no JWT."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "Planted-aws-secret")
    source = MskSigner("eu-central-1")
    error = kafka.refused(source)
    assert error.code == "kafka_token_rejected"
    assert "a token without readable claims" in error.message
    token = current(source, Deadline.after_ms(60_000)).value
    assert b"auth=Bearer " + token.encode() in b"".join(sent)


def test_a_login_is_repeated_on_the_same_connection_with_new_tokens(
    kafka: TokenKafka, endpoint: TokenEndpoint
) -> None:
    """Tokens of four seconds at a listener that ends logins after two (KIP-368)."""
    endpoint.seconds = 4
    with closing(kafka.client(of(endpoint), kafka.secured.short)) as client:
        deadline = Deadline.after_ms(300_000)
        client.transaction_version(deadline)
        (lane,) = client._connections._channels.values()
        connection, logins = lane.connection, set()
        while len(logins) < 3 or len(endpoint.tokens) < 2:
            assert not deadline.has_passed
            client.transaction_version(deadline)
            if lane.connection is not connection:  # a machine that stalled: watch the next one
                connection, logins = lane.connection, set()
            logins.add(connection._reauth.authenticated_at)


@contextmanager
def without_a_token(
    kafka: TokenKafka, endpoint: TokenEndpoint, answers: list[int]
) -> Iterator[KafkaClient]:
    """A client whose token has ended, and whose connection is gone: it needs a new token, but the
    endpoint first gives these answers."""
    endpoint.seconds = 1
    source = of(endpoint)
    with closing(kafka.client(source)) as client:
        client.transaction_version(Deadline.after_ms(300_000))
        (lane,) = client._connections._channels.values()
        endpoint.refusing[:] = answers
        token = last_token(source)
        assert token is not None
        assert token.ends_at is not None
        ends_at = token.ends_at
        wait_until(lambda: time.time() > ends_at)
        client._connections.drop(lane.node)
        yield client


def test_a_token_endpoint_that_is_down_is_waited_for(
    kafka: TokenKafka, endpoint: TokenEndpoint
) -> None:
    """A client that is connected keeps its token; a later connection needs a new one."""
    with without_a_token(kafka, endpoint, [503] * 3) as client:
        assert client.transaction_version(Deadline.after_ms(300_000)) == 2
    assert endpoint.refusing == []
    assert len(endpoint.tokens) >= 2


def test_a_client_that_the_endpoint_refuses_later_ends_the_wait(
    kafka: TokenKafka, endpoint: TokenEndpoint
) -> None:
    deadline = Deadline.after_ms(300_000)
    with without_a_token(kafka, endpoint, [400] * 100) as client:
        with raises("token_request_rejected"):
            client.transaction_version(deadline)
        assert deadline.left_ms > 200_000
