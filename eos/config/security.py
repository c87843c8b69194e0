"""The profile's block `kafka.security`: TLS and login of the Kafka cluster.

Spark's Kafka source, the driver and the executors all use this block.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from eos.config.base import Strict
from eos.config.variables import FilledText
from eos.secret import PATH_PATTERN, REFERENCE_PATTERN, file_of, is_reference, read_file

FILE_PATTERN = f"^{PATH_PATTERN}$"
USER_PATTERN = r"^[^\s\"\\$]{1,200}$"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# A password with one of these would end the quoted text in which Kafka's Java client puts it.
_BREAKS_QUOTES = re.compile(r"[\"\\]")
_TLS, _SASL = {"SSL", "SASL_SSL"}, {"SASL_SSL", "SASL_PLAINTEXT"}


def _refuse(words: str) -> PydanticCustomError:
    """Return an error of the kind "secret": its message never shows the rejected value."""
    return PydanticCustomError("secret", "{words}", {"words": f"expected {words}"})


def _reference(value: object) -> object:
    """Return the reference to a secret (`${VAR}` or `${file:/path}`) as written in the file.

    Raise an error if `value` is no such reference, or if the secret is empty or has a line break.
    """
    if value is None:
        return value
    written = value.written if isinstance(value, FilledText) else value
    if not isinstance(written, str) or not is_reference(written):
        raise _refuse(
            "`${VAR}` or `${file:/absolute/path}` and no other text: a profile contains neither a "
            "secret nor a default for it"
        )
    if isinstance(value, FilledText):
        _require_one_line(value)
    return written


def _require_one_line(found: FilledText) -> None:
    path = file_of(found.written)
    exact = read_file(path) if path is not None else str(found)
    if not exact:
        raise _refuse(f"a secret that is not empty in {found.written}")
    if _CONTROL.search(exact):
        raise _refuse(
            f"one line without a line break in {found.written}: Kafka's Java client would read the "
            "line break as part of the secret (`printf %s` writes none)"
        )


def _password(value: object) -> object:
    found = _reference(value)
    if isinstance(value, FilledText) and _BREAKS_QUOTES.search(value):
        raise _refuse(
            f"a password without double quotes and backslashes in {found}: Kafka's Java client "
            "can't read them from a variable or file"
        )
    return found


_AS_TEXT = WithJsonSchema(
    {"type": "string", "pattern": REFERENCE_PATTERN, "examples": ["${file:/run/secrets/kafka}"]}
)
Password = Annotated[str, BeforeValidator(_password), _AS_TEXT]
# An absolute path, so that it means the same file whatever a process's working directory is.
PemFile = Annotated[str, Field(pattern=FILE_PATTERN)]


class Security(Strict):
    """TLS and login of the Kafka cluster. Files are PEM.

    Without `ca`, the certificate authorities of each machine are trusted.
    """

    protocol: Literal["SSL", "SASL_SSL", "SASL_PLAINTEXT"]
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] | None = None
    user: Annotated[str, Field(pattern=USER_PATTERN)] | None = None
    password: Password | None = None
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
        login = {"mechanism": self.mechanism, "user": self.user, "password": self.password}
        files = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        for name, value in login.items():
            if self.has_sasl and value is None:
                raise ValueError(f"expected `{name}` with `protocol: {self.protocol}`")
            if not self.has_sasl and value is not None:
                raise ValueError(
                    f"expected no `{name}` with `protocol: {self.protocol}`, which has no login; "
                    "did you mean `protocol: SASL_SSL`?"
                )
        for name, value in files.items():
            if not self.has_tls and value is not None:
                raise ValueError(f"expected no `{name}` with `protocol: {self.protocol}`")
            if name == "key" and value is not None and self.certificate is None:
                raise ValueError("expected `certificate` with `key`")
        if self.protocol == "SASL_PLAINTEXT" and self.mechanism == "PLAIN":
            raise ValueError(
                "expected a SCRAM mechanism with `protocol: SASL_PLAINTEXT`: PLAIN would send the "
                "password unencrypted"
            )
        return self
