"""Convert a profile's `kafka.security` into the settings of kafka-python and the Java client.

The driver and the writers use kafka-python, and Spark's source uses Kafka's Java client. The
settings here have references to secrets, but no secrets. kafka-python's secrets are read when it
connects (`kafka/client_options.py`). The Java client reads them on its own machine by Kafka's
configuration providers. So Spark's plans, event log and checkpoint only contain `${file:...}` or
`${env:...}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from eos.config.client_properties import CLIENT_ID
from eos.errors import PRINCIPAL, EosError, UsageError, reword, with_principal
from eos.kafka.settings import KafkaSettings
from eos.login.msk_signer import MskSigner
from eos.plan import java_login

if TYPE_CHECKING:
    from eos.config.security import Security
    from eos.login.tokens import TokenSource

_PROVIDERS = "org.apache.kafka.common.config.provider"
_OTHER_KEYS = ("RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY")


def kafka_settings(
    bootstrap: tuple[str, ...],
    security: Security | None,
    client: Mapping[str, str] | None = None,
) -> KafkaSettings:
    """Return the connection settings for kafka-python, which driver and writers use.

    `client` has the properties of the profile's `kafka.client`."""
    properties = dict(client or {})
    client_id = properties.pop(CLIENT_ID, "eos")
    given = tuple(properties.items())
    if security is None:
        return KafkaSettings(bootstrap, client_id, properties=given)
    tokens = kafka_tokens(security)
    found = {
        "security_protocol": security.protocol,
        # AWS's signer makes tokens that its brokers accept by OAUTHBEARER.
        "sasl_mechanism": security.mechanism if tokens is None else "OAUTHBEARER",
        "sasl_plain_username": security.user,
        "sasl_plain_password": security.password,
        "ssl_cafile": security.ca,
        "ssl_certfile": security.certificate,
        "ssl_keyfile": security.key,
    }
    return KafkaSettings(
        bootstrap,
        client_id,
        tuple((name, value) for name, value in found.items() if value),
        properties=given,
        token=tokens,
        token_extensions=tuple(security.oauth.extensions.items()) if security.oauth else (),
        tickets=security.kerberos.tickets if security.kerberos else None,
    )


def kafka_tokens(security: Security) -> TokenSource | None:
    """Return the source of the tokens of a Kafka login; None if it is another kind of login."""
    if security.region is not None:
        return MskSigner(security.region)
    return None if security.oauth is None else security.oauth.tokens("kafka.security.oauth")


def source_options(security: Security | None) -> Mapping[str, str]:
    """Return the Java client's settings for Spark's source, without the prefix `kafka.`.

    The Java client reads the same PEM files as kafka-python. Raise UsageError for a private key
    that Java can't read.
    """
    if security is None:
        return {}
    options: dict[str, str] = {
        "security.protocol": security.protocol,
        "config.providers": "file,env",
        "config.providers.file.class": f"{_PROVIDERS}.DirectoryConfigProvider",
        "config.providers.env.class": f"{_PROVIDERS}.EnvVarConfigProvider",
    }
    if security.ca:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": security.ca}
    if security.certificate:
        key = security.key or security.certificate
        _require_pkcs8(Path(key))
        # Pass the content of the files. A location would have to be one file with key and
        # certificate.
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": java_login.content(Path(security.certificate)),
            "ssl.keystore.key": java_login.content(Path(key)),
        }
    return options | java_login.options(security)


def principal(security: Security | None) -> str:
    """Return the principal under which the broker knows this client, such as `User:alice`.

    Return an empty text if only the broker knows it: the subject of a certificate or token."""
    if security is None:
        return "User:ANONYMOUS"
    if security.kerberos is not None:  # by the default of sasl.kerberos.principal.to.local.rules
        return f"User:{security.kerberos.principal.partition('@')[0].partition('/')[0]}"
    if security.has_sasl:
        return f"User:{security.user}" if security.user else ""
    return "" if security.certificate else "User:ANONYMOUS"


@contextmanager
def naming_principal(security: Security | None, *others: Security | None) -> Iterator[None]:
    """Add this client's principal to errors about missing rights that are raised in the context.

    If the context uses further logins (`others`) as another principal, the errors stay unchanged,
    because they don't say which of them was used.

    If the principal is a certificate's subject, add the command that prints the subject; if it is a
    token's, name the claim.
    """
    try:
        yield
    except EosError as error:
        name = principal(security)
        if any(other != security and not (name and principal(other) == name) for other in others):
            raise
        found = with_principal(name, error) if name else error
        if not name and security is not None and PRINCIPAL in error.hint:
            subject = "the token's claim `sub`, or sasl.oauthbearer.sub.claim.name of the broker"
            if security.mechanism == "AWS_MSK_IAM":
                subject = "the ARN of the role; with IAM, rights are in its policy, not in ACLs"
            elif not security.has_sasl:
                subject = "the certificate's subject: openssl x509 -noout -subject -nameopt "
                subject += f"RFC2253 -in {security.certificate}"
            hint = f"{error.hint}. PRINCIPAL is {subject}"
            found = reword(error, hint=hint)
        if found is error:
            raise
        raise found from error


def _require_pkcs8(path: Path) -> None:
    """Raise UsageError for a private key that Java can't read.

    Python also reads other kinds of PEM keys. Without this check, Spark would fail later with an
    unclear message. Encrypted keys are rejected, since Java 17 supports none of the ciphers that
    are used today (JDK-8285827).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or "it is not PEM text"
        raise UsageError(
            "tls_key_unreadable",
            f"the TLS key {path} can't be read: {reason}",
            hint="correct `kafka.security` in the profile: the file must be readable at this path "
            "on the driver and all executors",
        ) from error
    key_format = next((kind for kind in _OTHER_KEYS if f"BEGIN {kind}" in text), None)
    if key_format is not None:
        raise UsageError(
            "tls_key_unsupported",
            f"the TLS key {path} has the format {key_format}, which Kafka's Java client can't read",
            hint=f"convert it: `openssl pkcs8 -topk8 -nocrypt -in {path} -out NEW`, and let only "
            "its owner read the new file: `chmod 600 NEW`",
        )
