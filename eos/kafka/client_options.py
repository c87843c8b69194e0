"""Convert a profile's security settings into kafka-python's options. Secrets are read here."""

from __future__ import annotations

import importlib
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka.net.manager import KafkaConnectionManager

from eos.errors import UsageError
from eos.kafka.settings import KafkaSettings
from eos.secret import reveal

_SECRETS = ("sasl_plain_password", "ssl_password")
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
_FLAGS = {"true": True, "false": False}


def security_options(settings: KafkaSettings) -> dict[str, Any]:
    """Return kafka-python's security options, with the values of secrets.

    Raise UsageError for an unknown name, which kafka-python would ignore, or an unusable file."""
    known = sorted(
        name
        for name in KafkaConnectionManager.DEFAULT_CONFIG
        if name.startswith(("ssl_", "sasl_")) or name == "security_protocol"
    )
    options: dict[str, Any] = {}
    for name, value in settings.security:
        if name not in known or name == "ssl_context":
            options_known = ", ".join(each for each in known if each != "ssl_context")
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
        elif name == "sasl_oauth_token_provider":
            options[name] = _load(value)
        else:
            options[name] = value
    _require_pem(options)
    return options


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


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            "token_provider_unloadable",
            f"sasl_oauth_token_provider {path!r} can't be loaded: {error}",
            hint="expected package.module:Class, a class with a method token() that returns the "
            "token",
        ) from error
