"""The errors for connections and requests that a broker rejects, with the cause and the fix."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import errors as kafka_errors

from eos.errors import (
    EosError,
    KafkaRefusedError,
    UnavailableError,
    UnsupportedBrokerError,
    UsageError,
)
from eos.kafka import acls
from eos.kafka.outcomes import code_of, name_of
from eos.kafka.remedies import SUPPORTED_BROKERS
from eos.kafka.settings import KafkaSettings
from eos.kafka.token_refusal import token_refusal
from eos.login.http_connection import is_about_our_certificate
from eos.login.kerberos import TicketSource

# TLS errors after which a retry may succeed: the peer closed the connection, or time ran out.
_TLS_UNFINISHED = (ssl.SSLEOFError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_EXPIRED, _NAMES = 10, (62, 64)  # X509_V_ERR_...: has expired; host name or address mismatch
# If a client without TLS connects to a TLS listener, the listener answers with a TLS alert.
# kafka-python reads its first bytes as the length of a response: 21 (alert), 3 (version 3.x).
_LENGTH, _TLS_ALERT = re.compile(r"Invalid frame length: (\d+)"), 0x1503
_CLOSED = ("frame length", "disconnected", "EOF occurred")
_LOGIN = (
    "check the password, and that the broker has this user for this mechanism: "
    "kafka-configs.sh --bootstrap-server ... --describe --entity-type users lists SCRAM users"
)
_LOGIN_ERRORS = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.AuthorizationError)
_SHOW = "openssl x509 -noout -dates -issuer -subject -in"


def refusal(error: BaseException, address: str, settings: KafkaSettings) -> EosError | None:
    """Return the error to raise if a failed connection or login can't succeed by a retry.

    Return None if a retry may succeed."""
    options = dict(settings.security)
    for cause in _causes(error):
        if isinstance(cause, UsageError):  # of a token or ticket that this machine can't get
            return cause
        if settings.token is not None and isinstance(cause, _LOGIN_ERRORS):
            return token_refusal(settings.token, address, reason_of(cause))
        if settings.tickets is not None and isinstance(cause, _LOGIN_ERRORS):
            return _ticket_refusal(settings.tickets, address, reason_of(cause))
        rejection = _rejection(cause, address, options)
        if rejection is not None:
            return rejection
    return None


def _ticket_refusal(tickets: TicketSource, address: str, reason: str) -> KafkaRefusedError:
    return KafkaRefusedError(
        "kerberos_login_rejected",
        f"{address} rejected the Kerberos login of {tickets.principal}: {reason}",
        hint="the broker's log has the cause: its keytab is older than its key in the KDC, or its "
        "clock differs from the KDC's by more than five minutes",
        address=address,
    )


def unreachable(addresses: tuple[str, ...], cause: str) -> UnavailableError:
    """Return the error to raise if no broker answers. `cause` is why one of the requests failed."""
    bootstrap = ",".join(addresses)
    text = f"no broker of {bootstrap} answers: {cause}"
    if "ECONNREFUSED" in cause:
        return UnavailableError(
            "brokers_unreachable",
            text,
            hint="nothing listens on this port: check that the broker runs and the port is right",
            bootstrap=addresses,
        )
    if "DNS" in cause:
        return UnavailableError(
            "brokers_unreachable",
            text,
            hint="this machine can't resolve the host name: check kafka.bootstrap and DNS",
            bootstrap=addresses,
        )
    if any(sign in cause for sign in _CLOSED):
        return UnavailableError(
            "brokers_unreachable",
            text,
            hint="the broker closed the connection at once: this port may require TLS or a login "
            "(kafka.security in the profile)",
            bootstrap=addresses,
        )
    return UnavailableError(
        "brokers_unreachable",
        text,
        hint="check the address, and that it is reachable from this machine",
        bootstrap=addresses,
    )


def refused(request: str, error: int, what: str, result: Any = None) -> KafkaRefusedError:
    """Return the error for a request that was rejected with this code.

    `what` is the object of the request: `topic NAME`, `group NAME`, a partition, or a transactional
    id. If a permission is missing, the hint has the command that grants it."""
    reason = (getattr(result, "error_message", None) or "").rstrip(".")
    detail = f": {reason}" if reason else ""
    kafka_error = name_of(error)
    right = acls.missing(request, error, _resource(error, what))
    if right is not None:
        return KafkaRefusedError(
            code_of(error),  # the same code as `outcomes.describe` uses
            f"Kafka answered {kafka_error} to {request} for {what}{detail}. {right.message}",
            hint=right.grant,
            error=error,
            api=request,
        )
    return KafkaRefusedError(
        "kafka_request_rejected",
        f"Kafka answered {kafka_error} to {request} for {what}{detail}",
        hint="search the broker's log for this error",
        error=error,
        api=request,
    )


def _resource(error: int, what: str) -> str:
    kind, _, name = what.partition(" ")
    if acls.RESOURCES.get(error) == "Topic":
        return name if kind == "topic" else "" if kind == "group" else kind.rpartition("-")[0]
    return name if kind == "group" else kind


def version_not_offered(
    api: str, version: int, offered: tuple[int, int] | None, address: str
) -> UnsupportedBrokerError:
    known = "no version" if offered is None else f"versions {offered[0]} to {offered[1]}"
    return UnsupportedBrokerError(
        "kafka_unsupported_version",
        f"{address} does not support {api} version {version}; it supports {known}",
        hint=SUPPORTED_BROKERS,
        api=api,
        address=address,
    )


def message_of(error: BaseException) -> str:
    message = " ".join(str(error).split()) or type(error).__name__
    return message.removeprefix("KafkaConnectionError: ")


def reason_of(error: BaseException) -> str:
    """Return the broker's reason for a rejected login."""
    return message_of(error).rpartition("SaslAuthenticationFailedError: ")[2]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the chain of causes. kafka-python stores some causes as an argument of an error."""
    for _ in range(10):
        if error is None:
            return
        yield error
        if isinstance(error, kafka_errors.KafkaProtocolError):
            return  # the decoder's error for a malformed answer is not about our settings
        inner = error.args[0] if error.args else None
        error = (
            error.__cause__
            or error.__context__
            or (inner if isinstance(inner, BaseException) else None)
        )


def _rejection(
    cause: BaseException, address: str, options: Mapping[str, str]
) -> KafkaRefusedError | None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _broker_certificate(cause, address, options)
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, _TLS_UNFINISHED):
        return _tls_failure(cause, address, options)
    length = _LENGTH.search(str(cause))
    if length is not None and int(length.group(1)) >> 16 == _TLS_ALERT:
        protocol = options.get("security_protocol", "PLAINTEXT")
        return KafkaRefusedError(
            "listener_requires_tls",
            f"{address} requires TLS, but kafka.security has the protocol {protocol}",
            hint="set protocol SASL_SSL or SSL in kafka.security of the profile",
            address=address,
        )
    if isinstance(cause, FileNotFoundError | PermissionError | ValueError | TypeError):
        reason = message_of(cause)
        return KafkaRefusedError(
            "kafka_security_unusable",
            f"the security settings for {address} can't be used: {reason}",
            hint="correct kafka.security in the profile (docs/security.md)",
            address=address,
        )
    return _failed_login(cause, address, options)


def _failed_login(
    cause: BaseException, address: str, options: Mapping[str, str]
) -> KafkaRefusedError | None:
    mechanism, protocol = options.get("sasl_mechanism"), options.get("security_protocol")
    if isinstance(cause, kafka_errors.UnsupportedSaslMechanismError):
        return KafkaRefusedError(
            "sasl_mechanism_unsupported",
            f"{address} does not offer a login by {mechanism} over {protocol}",
            hint="use a mechanism of the broker (sasl.enabled.mechanisms), or the port of another "
            "listener",
            address=address,
        )
    if isinstance(cause, kafka_errors.IllegalSaslStateError):
        return KafkaRefusedError(
            "listener_without_login",
            f"{address} accepts no login, but kafka.security has one by {mechanism} over "
            f"{protocol}",
            hint="use the port of another listener; an SSL listener authenticates clients by "
            "certificate",
            address=address,
        )
    if isinstance(cause, _LOGIN_ERRORS):
        user, reason = options.get("sasl_plain_username"), reason_of(cause)
        return KafkaRefusedError(
            "sasl_authentication_failed",
            f"{address} rejected the login of {user} by {mechanism} over {protocol}: {reason}",
            hint=_LOGIN,
            address=address,
        )
    return None


def _broker_certificate(
    cause: ssl.SSLCertVerificationError, address: str, options: Mapping[str, str]
) -> KafkaRefusedError:
    reason = cause.verify_message
    if cause.verify_code == _EXPIRED:
        return KafkaRefusedError(
            "broker_certificate_expired",
            f"the certificate of {address} is invalid: {reason}",
            hint="check the clock of this machine, then renew the broker's certificate",
            address=address,
        )
    if cause.verify_code in _NAMES:
        return KafkaRefusedError(
            "broker_certificate_name_mismatch",
            f"the certificate of {address} is invalid: {reason}",
            hint="use the broker's name as in its certificate, in kafka.bootstrap and in the "
            "broker's advertised.listeners",
            address=address,
        )
    ca = options.get("ssl_cafile")
    has_signed = f"check that kafka.security.ca ({ca}) is the authority that signed it"
    missing = "set kafka.security.ca to the certificate of the authority that signed it"
    return KafkaRefusedError(
        "broker_certificate_untrusted",
        f"the certificate of {address} is not trusted: {reason}",
        hint=missing if ca is None else has_signed,
        address=address,
    )


def _tls_failure(
    cause: ssl.SSLError, address: str, options: Mapping[str, str]
) -> KafkaRefusedError:
    reason = str(cause.reason or "")
    certificate = options.get("ssl_certfile")
    if not is_about_our_certificate(cause):
        reason = reason or str(cause)
        return KafkaRefusedError(
            "tls_handshake_failed",
            f"the TLS handshake with {address} failed: {reason}",
            hint="check that this is the broker's TLS port, and whether it requires a client "
            "certificate",
            address=address,
        )
    alert = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if certificate is None:
        return KafkaRefusedError(
            "client_certificate_missing",
            f"{address} requires a client certificate, but kafka.security has none ({alert})",
            hint="set kafka.security.certificate and key, or use the port of another listener",
            address=address,
        )
    return KafkaRefusedError(
        "client_certificate_rejected",
        f"{address} rejected the client certificate {certificate}: {alert}",
        hint="it has expired, or the broker does not trust the authority that signed it: "
        f"`{_SHOW} {certificate}` shows both",
        address=address,
    )
