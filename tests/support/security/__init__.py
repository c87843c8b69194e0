"""A broker with logins and rights, and certificates for TLS, made by openssl's command.

The broker's own listener is for tests, whose user is a super user. Pipelines use `login` (TLS, and
SCRAM or PLAIN), `mutual` (TLS, both sides show certificates), `expired` (TLS, with a certificate
that has expired) and `open` (SCRAM without TLS, for two seconds a login). With the keys of an
issuer, its tokens are accepted at `oauth`, and for two seconds a login at `short`.

    tokens             an authorization server: signed tokens, a token endpoint
    kdc                a KDC of MIT Kerberos, and a broker that logs clients in by it
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eos.errors import UnavailableError
from eos.local.broker_node import HOST, free_ports
from eos.local.embedded_kafka import EmbeddedKafka
from support.kafka import kafka_io
from support.security.tokens import Issuer
from support.waiting import wait_until

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Authority:
    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Authority:
        folder.mkdir(parents=True)
        made = cls(folder)
        subject = f"/CN={folder.name}"
        files = ("-keyout", folder / "ca.key", "-out", made.certificate)
        _openssl("req", "-x509", *_KEY, *files, "-days", "30", "-subj", subject)
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        return made

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.pem"

    def sign(self, name: str, days: int = 30) -> Path:
        """Certificate and key in one file. With -1 days it has expired before it is used."""
        request, key, signed = (self.folder / f"{name}.{end}" for end in ("csr", "key", "crt"))
        _openssl("req", "-new", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        own = ("-CA", self.certificate, "-CAkey", self.folder / "ca.key", "-CAcreateserial")
        names = ("-extfile", self.folder / "names")
        _openssl("x509", "-req", "-in", request, *own, "-days", str(days), *names, "-out", signed)
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + signed.read_text())
        return both


def _openssl(*words: str | Path) -> None:
    assert shutil.which("openssl"), "the tests of TLS need the command openssl"
    done = subprocess.run(
        ["openssl", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


DOCS = Path(__file__).parents[3] / "docs" / "security.md"
USER, PASSWORD = "eos", "Planted-5ecret.in/a+file="
SESSION_MS = 2_000
LISTENERS = {"LOGIN": "SASL_SSL", "MUTUAL": "SSL", "EXPIRED": "SSL", "OPEN": "SASL_PLAINTEXT"}
OF_TOKENS = {"OAUTH": "SASL_SSL", "SHORT": "SASL_SSL"}
_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer"
_KINDS = {
    "--topic": ResourceType.TOPIC,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--group": ResourceType.GROUP,
}


# All that Spark and Kafka's client have to say, and what Spark keeps of its plans and settings.
EVERYTHING = """\
status = error
rootLogger.level = info
rootLogger.appenderRefs = file
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:eos.log.folder}/spark.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c{1}: %m%n%ex
"""


def holding(secret: str, places: Iterable[Path]) -> list[Path]:
    """The files below these places that have it, whatever they are."""
    files = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
    assert files
    return [path for path in files if secret.encode() in path.read_bytes()]


class Right(NamedTuple):
    """As kafka-acls.sh is told of it."""

    flag: str
    name: str
    operation: str

    def of(self, names: Mapping[str, str]) -> Right:
        return self._replace(name=names[self.name])

    def binding(self, user: str) -> AclBinding:
        word = re.sub(r"(?<!^)(?=[A-Z])", "_", self.operation).upper()
        return AclBinding(
            _KINDS[self.flag],
            self.name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[word],
            AclPermissionType.ALLOW,
        )


def documented() -> list[Right]:
    """The rights that docs/security.md says a pipeline needs, with the names of its example."""
    return [
        Right(flag, name, operation)
        for flag, name, operations in re.findall(
            r"^\$acl (--[a-z-]+) (\S+) +(--operation .*)$", DOCS.read_text(), re.MULTILINE
        )
        for operation in operations.replace("--operation", "").split()
    ]


@dataclass
class SecuredKafka:
    broker: EmbeddedKafka
    ca: Authority
    other_ca: Authority
    login: str
    mutual: str
    expired: str
    open: str
    oauth: str = ""
    short: str = ""
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 2})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
        for done in self.admin.alter_user_scram_credentials([user]).values():
            done.result(180)
        self._wait_let_in()

    def _wait_let_in(self) -> None:
        """The answer says that the controller knows the user; the broker hears of it later."""
        client = AdminClient(
            {
                "bootstrap.servers": self.login,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
                "ssl.ca.location": str(self.ca.certificate),
                "log_level": 0,
            }
        )
        kafka_io.answered(lambda: client.list_topics(timeout=60))

    def grant(self, rights: Iterable[Right], user: str = USER) -> None:
        """Returns when the broker goes by them."""
        bindings = [right.binding(user) for right in rights]
        for done in self.admin.create_acls(bindings).values():
            done.result(180)
        for binding in bindings:
            self._until(binding, is_there=True)

    def revoke(self, right: Right, user: str = USER) -> None:
        binding = right.binding(user)
        for done in self.admin.delete_acls([_only(binding)]).values():
            done.result(180)
        self._until(binding, is_there=False)

    def _until(self, binding: AclBinding, *, is_there: bool) -> None:
        known = _only(binding)
        wait_until(lambda: bool(self.admin.describe_acls(known).result(180)) is is_there, binding)

    def security(self, **other: str) -> tuple[tuple[str, str], ...]:
        """To log in at `login`, as kafka-python names it."""
        given = {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
            "ssl_cafile": str(self.ca.certificate),
            **other,
        }
        return tuple((name, value) for name, value in given.items() if value)


def _only(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


@contextmanager
def token_kafka(folder: Path) -> Iterator[tuple[SecuredKafka, Issuer]]:
    """A broker with listeners for tokens, and the issuer whose keys it has."""
    issuer = Issuer()
    with secured_kafka(folder, issuer.write_jwks(folder / "jwks.json")) as secured:
        yield secured, issuer


@contextmanager
def secured_kafka(folder: Path, jwks: Path | None = None) -> Iterator[SecuredKafka]:
    """`jwks`: the keys of an issuer, for listeners with tokens."""
    ca, other = Authority.made(folder / "ca"), Authority.made(folder / "other-ca")
    for name, days in (("broker", 30), ("was-broker", -1)):
        ca.sign(name, days)
    with _reading(jwks):
        broker, addresses = _started(folder / "broker", ca, jwks)
    try:
        yield SecuredKafka(broker, ca, other, *addresses)
    finally:
        broker.stop()


@contextmanager
def _reading(jwks: Path | None) -> Iterator[None]:
    """Java reads this variable. A broker opens only files and URLs that are allowed to it."""
    if jwks is None:
        yield
        return
    allowed = {"urls": f"file:{jwks}", "files": jwks}
    words = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{k}={v}" for k, v in allowed.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", " ".join(words))
        yield


def _started(
    folder: Path, ca: Authority, jwks: Path | None = None
) -> tuple[EmbeddedKafka, list[str]]:
    """Somebody else may take a port before the broker binds it: then with others, once more."""
    names = {**LISTENERS, **(OF_TOKENS if jwks is not None else {})}
    for is_last in (False, True):
        listeners = dict(zip(names, (f"{HOST}:{p}" for p in free_ports(len(names))), strict=True))
        more = {} if jwks is None else _of_tokens(jwks)
        config = {**_config(ca, listeners), **more}
        broker = EmbeddedKafka(folder, config=config)
        try:
            broker.start()
        except UnavailableError:
            if is_last:
                raise
        else:
            return broker, list(listeners.values())
    raise AssertionError("it started or raised")


def _of_tokens(jwks: Path) -> Mapping[str, str]:
    found = {
        "sasl.oauthbearer.jwks.endpoint.url": f"file:{jwks}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer.test",
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
    }
    for name in ("oauth", "short"):
        at = f"listener.name.{name}"
        found |= {
            f"{at}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{at}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{at}.oauthbearer.sasl.server.callback.handler.class": (
                f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
            ),
        }
    return found


def _config(ca: Authority, listeners: Mapping[str, str]) -> Mapping[str, str]:
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS, **OF_TOKENS}
    login = "listener.name.login"
    scram = "scram-sha-512.sasl.jaas.config"
    open_to_all = "listener.name.open"
    return {
        "listeners": ",".join(f"{name}://{at}" for name, at in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(ca.folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca.certificate),
        "listener.name.expired.ssl.keystore.location": str(ca.folder / "was-broker.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        f"{login}.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        f"{login}.{scram}": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{open_to_all}.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        # Who logged in here must do so again within this time, on the same connection (KIP-368).
        f"{open_to_all}.connections.max.reauth.ms": str(SESSION_MS),
        f"{open_to_all}.{scram}": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{login}.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
    }
