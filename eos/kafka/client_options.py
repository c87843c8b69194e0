"""Convert a profile's security settings into kafka-python's options. Secrets are read here."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider

from eos.deadline import Deadline
from eos.errors import UsageError
from eos.kafka.settings import KafkaSettings
from eos.login.tokens import TokenSource, current
from eos.secret import reveal

_SECRETS = ("sasl_plain_password", "ssl_password")
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
_FLAGS = {"true": True, "false": False}
_NOT_TEXT = {"ssl_context", "sasl_oauth_token_provider"}  # options that no setting can have
# Properties of Kafka's own names, and kafka-python's.
_NUMBERS = {
    "connections.max.idle.ms": "connections_max_idle_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
}
_BUFFERS = {"receive.buffer.bytes": socket.SO_RCVBUF, "send.buffer.bytes": socket.SO_SNDBUF}
_FIRST_TOKEN_MS = 20_000
# A later token is fetched while a connection logs in, on the IO thread.
_TOKEN_MS = 4_000


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return kafka-python's options for `properties`. Raise ValueError for an unknown one."""
    options: dict[str, Any] = {"socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]}
    options["socket_options"].append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    for name, value in settings.properties:
        if name in _NUMBERS:
            options[_NUMBERS[name]] = int(value)
        elif name in _BUFFERS:
            options["socket_options"].append((socket.SOL_SOCKET, _BUFFERS[name], int(value)))
        elif name == "ssl.endpoint.identification.algorithm":
            options["ssl_check_hostname"] = value != ""
        else:
            raise ValueError(f"unknown property {name}")
    return options


def security_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return kafka-python's security options, with the values of secrets.

    Raise UsageError for an unknown name, which kafka-python would ignore, or an unusable file. The
    first token or ticket is fetched here, so that the caller gets its errors."""
    known = sorted(
        name
        for name in KafkaConnectionManager.DEFAULT_CONFIG
        if name.startswith(("ssl_", "sasl_")) or name == "security_protocol"
    )
    options: dict[str, Any] = {}
    for name, value in settings.security:
        if name not in known or name in _NOT_TEXT:
            options_known = ", ".join(each for each in known if each not in _NOT_TEXT)
            raise UsageError(
                "kafka_security_option_unknown",
                f"unknown security option {name} of the Kafka client",
                hint=f"the known options are {options_known}",
            )
        if name == "ssl_check_hostname":
            if value.lower() not in _FLAGS:
                raise UsageError(
                    "ssl_check_hostname_invalid",
                    f"ssl_check_hostname is {value!r}; expected true or false",
                    hint="correct it in `kafka.security` of the profile (docs/security.md)",
                )
            options[name] = _FLAGS[value.lower()]
        elif name in _SECRETS:
            options[name] = reveal(value)
        elif name in _FILES:
            _require_file(name, Path(value))
            options[name] = value
        else:
            options[name] = value
    _require_pem(options)
    if settings.token is not None:
        current(settings.token, Deadline.after_ms(_FIRST_TOKEN_MS))
        options["sasl_oauth_token_provider"] = _Tokens(settings.token, settings.token_extensions)
    if settings.tickets is not None:
        # Only here, since few clients use it.
        from eos.kafka import gssapi_mechanism
        from eos.login.kerberos import require_ticket

        require_ticket(settings.tickets, Deadline.after_ms(_FIRST_TOKEN_MS))
        gssapi_mechanism.register()
        options["sasl_kerberos_name"] = settings.tickets
    return options


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # its base has no type hints
    """The tokens of a source, as kafka-python asks for them."""

    def __init__(self, source: TokenSource, extensions: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self._source, self._extensions = source, dict(extensions)

    def extensions(self) -> dict[str, str]:
        return self._extensions

    def token(self) -> str:
        return current(self._source, Deadline.after_ms(_TOKEN_MS)).value


def _require_pem(options: Mapping[str, Any]) -> None:
    """Raise UsageError unless certificates and key are loadable PEM files.

    The files are loaded once before the first connection. Otherwise OpenSSL would ask on the
    terminal for the password of an encrypted key, and wait for ever."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca, certificate = options.get("ssl_cafile"), options.get("ssl_certfile")
    key = options.get("ssl_keyfile") or certificate
    try:
        if ca:
            context.load_verify_locations(ca)
    except ssl.SSLError as error:
        reason = error.reason or "it is not PEM"
        raise UsageError(
            "kafka_ca_unusable",
            f"the CA file {ca} (kafka.security.ca) can't be loaded: {reason}",
            hint="the file must contain one or more certificates in PEM format",
        ) from error
    try:
        if certificate:
            context.load_cert_chain(certificate, key, options.get("ssl_password") or str)
    except ssl.SSLError as error:
        reason = error.reason or "it is not PEM, or needs a password"
        raise UsageError(
            "kafka_certificate_unusable",
            f"the certificate {certificate} with the key {key} can't be loaded: {reason}",
            hint="both files must be PEM, the key must have no password, and it must belong to the "
            f"certificate: `openssl x509 -noout -pubkey -in {certificate}` and `openssl pkey "
            f"-pubout -in {key}` must print the same",
        ) from error


def _require_file(name: str, path: Path) -> None:
    """Raise UsageError if a file is unreadable on this host.

    The error names file and host. kafka-python's own error names neither."""
    try:
        path.open("rb").close()
    except OSError as error:
        host, reason = socket.gethostname(), error.strerror
        raise UsageError(
            "kafka_security_file_unreadable",
            f"the file {path} ({name}) can't be read on {host}: {reason}",
            hint="kafka.security refers to this file; the driver and all executors need it under "
            "this path",
            path=str(path),
        ) from error
