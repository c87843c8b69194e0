"""Logins at a schema registry: by certificate, by bearer token, and by OAuth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.errors import raises
from support.kafka.schemas import FakeRegistry, registry
from support.security import Authority
from support.security.tokens import CLIENT, SECRET, Issuer, server_tls, token_endpoint

from eos.config.oauth import OAuth
from eos.config.registry import Registry
from eos.deadline import Deadline
from eos.formats.registry_client import RegistryClient


@dataclass(frozen=True)
class Secured:
    """A registry behind TLS, and the authorities: its own, and one that it does not know."""

    asked: FakeRegistry
    ca: Authority
    other: Authority

    def require_there(self, **login: object) -> None:
        given = Registry(url=self.asked.url, ca=str(self.ca.certificate), **login)
        RegistryClient(given).require_there(Deadline.after_ms(60_000))


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    folder = tmp_path_factory.mktemp("authorities")
    ca, other = Authority.made(folder / "ca"), Authority.made(folder / "other")
    for signed in (ca, other):
        signed.sign("server")
        signed.sign("client")
    return ca, other


@pytest.fixture
def secured(authorities: tuple[Authority, Authority]) -> Iterator[Secured]:
    ca, other = authorities
    with registry(server_tls(ca.folder / "server.pem")) as asked:
        yield Secured(asked, ca, other)


@pytest.fixture
def mutual(authorities: tuple[Authority, Authority]) -> Iterator[Secured]:
    ca, other = authorities
    with registry(server_tls(ca.folder / "server.pem", clients_of=ca.certificate)) as asked:
        yield Secured(asked, ca, other)


@pytest.mark.parametrize("is_one_file", [True, False])
def test_a_certificate_logs_in(mutual: Secured, is_one_file: bool) -> None:
    own = {"certificate": f"{mutual.ca.folder}/client.pem"}
    if not is_one_file:
        own = {end: f"{mutual.ca.folder}/client.{end}" for end in ("key",)}
        own["certificate"] = f"{mutual.ca.folder}/client.crt"
    mutual.require_there(**own)
    assert mutual.asked.asked == ["GET /config"]


def test_a_certificate_that_is_missing_or_unknown_is_named_at_once(mutual: Secured) -> None:
    with raises("registry_certificate_missing") as caught:
        mutual.require_there()
    assert "set `registry.certificate`" in caught.value.hint
    stranger = f"{mutual.other.folder}/client.pem"
    with raises("registry_certificate_rejected") as caught:
        mutual.require_there(certificate=stranger)
    assert stranger in caught.value.message
    with raises("client_certificate_unusable") as caught:
        mutual.require_there(
            certificate=f"{mutual.ca.folder}/client.crt", key=f"{mutual.other.folder}/client.key"
        )
    assert "`registry.certificate`" in caught.value.message
    assert mutual.asked.asked == []


def test_a_bearer_token_is_read_for_each_request(secured: Secured, tmp_path: Path) -> None:
    for text in ("first", "second"):
        (tmp_path / "token").write_text(text)
        secured.require_there(token=f"${{file:{tmp_path}/token}}")
        assert secured.asked.login == f"Bearer {text}"
    secured.asked.refusing[:] = [401]
    with raises("registry_login_rejected") as caught:
        secured.require_there(token=f"${{file:{tmp_path}/token}}")
    assert "a token may have expired" in caught.value.hint
    assert "second" not in str(caught.value)


def test_a_token_of_a_token_endpoint(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OAUTH_SECRET", SECRET)
    with token_endpoint(Issuer()) as endpoint:
        oauth = OAuth(
            token_endpoint=endpoint.url, client_id=CLIENT, client_secret="${OAUTH_SECRET}"
        )
        for _ in range(2):
            secured.require_there(oauth=oauth, headers={"target-sr-cluster": "lsrc-1"})
        assert secured.asked.headers["target-sr-cluster"] == "lsrc-1"
        assert secured.asked.login == f"Bearer {endpoint.tokens[0]}"
        assert len(endpoint.tokens) == 1
        stranger = oauth.model_copy(update={"client_id": "stranger"})
        with raises("token_request_rejected") as caught:
            secured.require_there(oauth=stranger)
    assert "of `registry.oauth` in the profile" in caught.value.hint
