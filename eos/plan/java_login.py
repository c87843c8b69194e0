"""The login of Kafka's Java client, which Spark's source and Spark's admin client use.

Secrets are references that Kafka's configuration providers resolve on the machine of the client.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eos.deadline import Deadline
from eos.login import token_server
from eos.login.tokens import current, require_jwt
from eos.secret import file_of, variable_of

if TYPE_CHECKING:
    from eos.config.kerberos import Kerberos
    from eos.config.oauth import OAuth
    from eos.config.security import Security

_MODULES = "org.apache.kafka.common.security"
_OAUTH = f"{_MODULES}.oauthbearer"
_MSK = "software.amazon.msk.auth.iam"
_TOKEN_MS_MAX = 20_000
_LOGIN_MODULES = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_OAUTH}.OAuthBearerLoginModule",
    "AWS_MSK_IAM": f"{_MSK}.IAMLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}


def options(security: Security) -> dict[str, str]:
    """Return the settings `sasl.*` of the Java client; empty without a login.

    Raise EosError if there is no token, or one that the Java client can't use.
    """
    if security.mechanism is None:
        return {}
    module = _LOGIN_MODULES[security.mechanism]
    found: dict[str, str] = {"sasl.mechanism": security.mechanism}
    login: dict[str, str] = {}
    if security.password is not None:
        login = {"username": str(security.user), "password": _java(security.password)}
    elif security.oauth is not None:
        more, login = _oauth(security.oauth)
        found |= more
    elif security.kerberos is not None:
        found["sasl.kerberos.service.name"] = security.kerberos.service_name
        login = _kerberos(security.kerberos)
    else:
        found["sasl.client.callback.handler.class"] = f"{_MSK}.IAMClientCallbackHandler"
    words = "".join(f' {name}="{value}"' for name, value in login.items())
    return found | {"sasl.jaas.config": f"{module} required{words};"}


def _kerberos(kerberos: Kerberos) -> dict[str, str]:
    """Return the options of Java's login module, which finds the KDC by its own `krb5.conf`."""
    found = {"principal": kerberos.principal, "doNotPrompt": "true"}
    if kerberos.keytab is None:
        return found | {"useTicketCache": "true"}
    return found | {"useKeyTab": "true", "storeKey": "true", "keyTab": kerberos.keytab}


def _oauth(oauth: OAuth) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of a login by token, and the options of its login module.

    The Java client asks a token endpoint itself. It can't call a Python function, and reads a file
    only once, so it gets those tokens from a token endpoint of this process.
    """
    tokens = oauth.tokens("kafka.security.oauth")
    extensions = {f"extension_{name}": value for name, value in oauth.extensions.items()}
    if oauth.java_class is not None:
        return {"sasl.login.callback.handler.class": oauth.java_class}, extensions
    require_jwt(current(tokens, Deadline.after_ms(_TOKEN_MS_MAX)))
    if oauth.client_id is not None and oauth.client_secret is not None:
        url = str(oauth.token_endpoint)
        login = {"clientId": oauth.client_id, "clientSecret": _java(oauth.client_secret)}
        login |= {"scope": oauth.scope} if oauth.scope else {}
        if oauth.ca:
            login |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": oauth.ca}
    else:
        served = token_server.serve(tokens)
        url = served.url
        login = {"clientId": token_server.CLIENT, "clientSecret": content(served.secret_file)}
    handler = f"{_OAUTH}.OAuthBearerLoginCallbackHandler"
    return {
        "sasl.login.callback.handler.class": handler,
        "sasl.oauthbearer.token.endpoint.url": url,
    }, login | extensions


def _java(reference: str) -> str:
    """Return a reference to a secret in the syntax of Kafka's configuration providers."""
    path = file_of(reference)
    return "${env:" + variable_of(reference) + "}" if path is None else content(path)


def content(path: Path) -> str:
    """Return the reference to a file's content, in the same syntax."""
    return "${file:" + f"{path.parent}:{path.name}" + "}"
