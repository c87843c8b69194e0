"""Why does a broker reject a connection or request that a retry would not fix?"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from kafka import errors as kafka_errors

from eos.errors import EosError, KafkaRefusedError
from eos.kafka import acls
from eos.kafka.outcomes import name_of
from eos.kafka.settings import KafkaSettings

# The peer closed the connection, or time ran out: a retry may succeed.
_TLS_UNFINISHED = (ssl.SSLEOFError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_EXPIRED, _NAMES = 10, (62, 64)  # X509_V_ERR_...: has expired; host name or address mismatch
# TLS alerts about our certificate. Java sends the same alert for an expired and an unknown one.
_OF_OURS = {
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
}
# If a client without TLS connects to a TLS listener, the listener answers with a TLS alert. Its
# first bytes are read here as the length of a response: 21 (alert), 3 (version 3.x).
_LENGTH, _TLS_ALERT = re.compile(r"Invalid frame length: (\d+)"), 0x1503
_LOGIN = (
    "is the password the right one, and does the broker have this user for this mechanism? "
    "kafka-configs.sh --describe --entity-type users lists those of SCRAM"
)
_SHOW = "openssl x509 -noout -dates -issuer -subject -in"


def refusal(error: BaseException, address: str, settings: KafkaSettings) -> EosError | None:
    """Return the error of a connection that a retry would not fix, else None."""
    options = dict(settings.security)
    for cause in _causes(error):
        told = _cause_and_hint(cause, address, options)
        if told is not None:
            message, hint = told
            return KafkaRefusedError(
                "kafka_connection_rejected", message, hint=hint, address=address
            )
    return None


def refused(request: str, error: int, what: str, result: Any = None) -> KafkaRefusedError:
    """Return the error for a request that was rejected with this code.

    `what` is the object of the request: `topic NAME`, `group NAME`, a partition, or a transactional
    id. If a permission is missing, the hint has the command that grants it."""
    said = (getattr(result, "error_message", None) or "").rstrip(".")
    right = acls.missing(request, error, _resource(error, what))
    more = f". {right.told}" if right is not None else ""
    return KafkaRefusedError(
        "kafka_request_rejected",
        f"{request} of {what}: {name_of(error)}{': ' + said if said else ''}{more}",
        hint=right.grant if right is not None else "",
        error=error,
        api=request,
    )


def _resource(error: int, what: str) -> str:
    kind, _, name = what.partition(" ")
    if acls.RESOURCES.get(error) == "Topic":
        return name if kind == "topic" else "" if kind == "group" else kind.rpartition("-")[0]
    return name if kind == "group" else kind


def words_of(error: BaseException) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words.removeprefix("KafkaConnectionError: ")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the chain of causes. kafka-python stores some causes as an argument of an error."""
    for _ in range(10):
        if error is None:
            return
        yield error
        inner = error.args[0] if error.args else None
        error = (
            error.__cause__
            or error.__context__
            or (inner if isinstance(inner, BaseException) else None)
        )


def _cause_and_hint(
    cause: BaseException, address: str, options: Mapping[str, str]
) -> tuple[str, str] | None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _of_theirs(cause, address, options)
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, _TLS_UNFINISHED):
        return _of_tls(cause, address, options)
    how = f"by {options.get('sasl_mechanism')} over {options.get('security_protocol')}"
    if isinstance(cause, kafka_errors.UnsupportedSaslMechanismError):
        return (
            f"{address} does not offer a login {how}",
            "choose one that it has (sasl.enabled.mechanisms), or the port of another listener",
        )
    if isinstance(cause, kafka_errors.IllegalSaslStateError):
        return (
            f"{address} asks for no login, and kafka.security has one {how}",
            "is it the port of another listener? A listener of SSL knows who we are by certificate",
        )
    if isinstance(
        cause, kafka_errors.SaslAuthenticationFailedError | kafka_errors.AuthorizationError
    ):
        said = words_of(cause).rpartition("SaslAuthenticationFailedError: ")[2]
        return (
            f"{address} refused the login of {options.get('sasl_plain_username')} {how}: {said}",
            _LOGIN,
        )
    length = _LENGTH.search(str(cause))
    if length is not None and int(length.group(1)) >> 16 == _TLS_ALERT:
        return (
            f"{address} speaks TLS, and {options.get('security_protocol', 'PLAINTEXT')} does not",
            "say so in the profile: kafka.security with protocol SASL_SSL or SSL",
        )
    if isinstance(cause, FileNotFoundError | PermissionError | ValueError | TypeError):
        return f"the security settings for {address} can't be used: {words_of(cause)}", ""
    return None


def _of_theirs(
    cause: ssl.SSLCertVerificationError, address: str, options: Mapping[str, str]
) -> tuple[str, str]:
    if cause.verify_code == _EXPIRED:
        hint = "renew the broker's certificate, if the clock of this machine is right"
    elif cause.verify_code in _NAMES:
        hint = "give the broker's name in kafka.bootstrap and advertised.listeners as it stands in "
        hint += "its certificate"
    else:
        ca = options.get("ssl_cafile")
        hint = f"is kafka.security.ca ({ca}) the authority that signed it?"
        if ca is None:
            hint = "name the authority that signed it: kafka.security.ca"
    return f"the certificate of {address} does not hold: {cause.verify_message}", hint


def _of_tls(cause: ssl.SSLError, address: str, options: Mapping[str, str]) -> tuple[str, str]:
    reason = str(cause.reason or "")
    ours = options.get("ssl_certfile")
    if "ALERT" not in reason or not any(reason.endswith(word) for word in _OF_OURS):
        return (
            f"no TLS session with {address}: {reason or cause}",
            "is this the broker's TLS port, and does it ask for a client certificate?",
        )
    said = reason.partition("ALERT_")[2].replace("_", " ").lower()
    if ours is None:
        return (
            f"{address} wants a client certificate, and kafka.security names none ({said})",
            "name one (kafka.security.certificate and key), or the port of another listener",
        )
    hint = (
        f"has it expired, or does the broker not trust who signed it? `{_SHOW} {ours}` tells both"
    )
    return f"{address} refused our certificate {ours}: {said}", hint
