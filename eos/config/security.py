"""The profile's block `kafka.security`: TLS and login of the Kafka cluster.

Spark's Kafka source, the driver and the executors all use this block.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from eos.config.base import Strict
from eos.config.kerberos import Kerberos
from eos.config.oauth import OAuth
from eos.config.references import USER_PATTERN, Password, PemFile

REGION_PATTERN = r"^[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}$"
_TLS, _SASL = {"SSL", "SASL_SSL"}, {"SASL_SSL", "SASL_PLAINTEXT"}
# The keys of each kind of login.
_PASSWORD = ("user", "password")
_KEYS = {"OAUTHBEARER": ("oauth",), "AWS_MSK_IAM": ("region",), "GSSAPI": ("kerberos",)}
_UNENCRYPTED = {
    "PLAIN": "PLAIN would send the password unencrypted",
    "OAUTHBEARER": "OAUTHBEARER would send the token unencrypted",
    "AWS_MSK_IAM": "AWS accepts this login over TLS only",
}


Mechanism = Literal[
    "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"
]


class Security(Strict):
    """TLS and login of the Kafka cluster. Files are PEM.

    Without `ca`, the certificate authorities of each machine are trusted.
    """

    protocol: Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"]
    mechanism: Mechanism | None = None
    user: Annotated[str, Field(pattern=USER_PATTERN)] | None = None
    password: Password | None = None
    oauth: OAuth | None = None
    kerberos: Kerberos | None = None
    region: Annotated[str, Field(pattern=REGION_PATTERN)] | None = None
    ca: PemFile | None = None
    certificate: PemFile | None = None
    key: PemFile | None = None

    @property
    def has_tls(self) -> bool:
        return self.protocol in _TLS

    @property
    def has_sasl(self) -> bool:
        return self.protocol in _SASL

    @model_validator(mode="after")
    def _fits_together(self) -> Security:
        keys = _KEYS.get(self.mechanism or "", _PASSWORD)
        given: dict[str, object] = {
            "mechanism": self.mechanism,
            "user": self.user,
            "password": self.password,
        }
        given |= {"oauth": self.oauth, "region": self.region, "kerberos": self.kerberos}
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        for name, value in given.items():
            is_used = name == "mechanism" or name in keys
            if self.has_sasl and is_used and value is None:
                after = f" and `mechanism: {self.mechanism}`" if name != "mechanism" else ""
                raise ValueError(f"expected `{name}` with `protocol: {self.protocol}`{after}")
            if not self.has_sasl and value is not None:
                raise ValueError(
                    f"expected no `{name}` with `protocol: {self.protocol}`, which has no login; "
                    "did you mean `protocol: SASL_SSL`?"
                )
            if not is_used and value is not None:
                raise ValueError(f"expected no `{name}` with `mechanism: {self.mechanism}`")
        for name, value in files.items():
            if not self.has_tls and value is not None:
                raise ValueError(f"expected no `{name}` with `protocol: {self.protocol}`")
            if name == "key" and value is not None and self.certificate is None:
                raise ValueError("expected `certificate` with `key`")
        if self.protocol == "SASL_PLAINTEXT" and self.mechanism in _UNENCRYPTED:
            reason = _UNENCRYPTED[self.mechanism]
            raise ValueError(f"expected SCRAM or GSSAPI with `protocol: SASL_PLAINTEXT`: {reason}")
        return self
