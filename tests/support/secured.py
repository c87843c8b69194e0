"""A broker that asks who one is, and lets each do only what was granted.

Its own listener is for tests, whose user is a super user. Those that pipelines use are `login`
(TLS, and SCRAM or PLAIN), `mutual` (TLS, both sides show certificates) and `expired` (TLS, with a
certificate that has expired).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eos.launch.embedded import EmbeddedKafka
from eos.launch.node import HOST, free_ports
from support.certificates import Authority

USER, PASSWORD = "eos", "Planted-5ecret.in/a+file="
LISTENERS = {"LOGIN": "SASL_SSL", "MUTUAL": "SSL", "EXPIRED": "SSL"}
_MODULES = "org.apache.kafka.common.security"


@dataclass
class SecuredKafka:
    broker: EmbeddedKafka
    ca: Authority
    other_ca: Authority
    login: str
    mutual: str
    expired: str
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 2})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
        for done in self.admin.alter_user_scram_credentials([user]).values():
            done.result(30)


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    ca, other = Authority.made(folder / "ca"), Authority.made(folder / "other-ca")
    for name, days in (("broker", 30), ("was-broker", -1)):
        ca.sign(name, days)
    ports = free_ports(3)
    addresses = [f"{HOST}:{port}" for port in ports]
    with EmbeddedKafka(folder / "broker", config=_config(ca, addresses)) as broker:
        yield SecuredKafka(broker, ca, other, *addresses)


def _config(ca: Authority, addresses: Iterable[str]) -> Mapping[str, str]:
    listeners = dict(zip(LISTENERS, addresses, strict=True))
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
    login = "listener.name.login"
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
        f"{login}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{login}.plain.sasl.jaas.config": (
            f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
    }
