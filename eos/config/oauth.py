"""The block `oauth` of a profile: where the tokens of a login are from."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from eos.config.base import Strict
from eos.config.references import USER_PATTERN, Password, PemFile
from eos.config.transform import FUNCTION_PATTERN
from eos.login.addresses import is_encrypted, is_url
from eos.login.tokens import TokenFile, TokenFunction, TokenSource

SCOPE_PATTERN = r"^[^\s\"\\$]+( [^\s\"\\$]+)*$"
JAVA_CLASS_PATTERN = r"^[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*$"
_OF_ENDPOINT = ("client_id", "client_secret", "scope", "ca")
EXTENSION_PATTERN = r"^[A-Za-z]{1,64}$"


def _endpoint(text: str) -> str:
    if not is_url(text):
        raise ValueError(
            "expected the URL of a token endpoint, such as `https://login.example/oauth/token`, "
            "without a user or query"
        )
    if not is_encrypted(text):
        raise ValueError(
            "expected a URL that begins with `https:`: `http:` would send the secret unencrypted"
        )
    return text


class OAuth(Strict):
    """The source of a login's tokens: a token endpoint (by client credentials), a file, or a Python
    function.

    `java_class` replaces the function or file for Spark's own Kafka client: a class that implements
    Kafka's `AuthenticateCallbackHandler`, from a jar of `spark.jars`. `extensions` are sent to
    Kafka with the token; Confluent Cloud requires some.
    """

    token_endpoint: Annotated[str, AfterValidator(_endpoint)] | None = None
    client_id: Annotated[str, Field(pattern=USER_PATTERN)] | None = None
    client_secret: Password | None = None
    scope: Annotated[str, Field(pattern=SCOPE_PATTERN, max_length=1000)] | None = None
    ca: PemFile | None = None
    token_file: PemFile | None = None
    callback: Annotated[str, Field(pattern=FUNCTION_PATTERN)] | None = None
    java_class: Annotated[str, Field(pattern=JAVA_CLASS_PATTERN)] | None = None
    extensions: dict[
        Annotated[str, Field(pattern=EXTENSION_PATTERN)],
        Annotated[str, Field(pattern=USER_PATTERN)],
    ] = Field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Return whether Kafka's Java client gets the tokens from this process alone."""
        return self.token_endpoint is None and self.java_class is None

    def tokens(self, block: str) -> TokenSource:
        """Return the source of the tokens. `block` is this block's place in the profile."""
        if self.token_file is not None:
            return TokenFile(self.token_file, block)
        if self.callback is not None:
            return TokenFunction(self.callback, block)
        # Only here, since not every command needs HTTP.
        from eos.login.http_connection import TlsFiles
        from eos.login.token_endpoint import ClientCredentials

        url, client, secret = self.token_endpoint, self.client_id, self.client_secret
        assert url is not None, "the validator requires one of the three"
        assert client is not None, "the validator requires a client"
        assert secret is not None, "the validator requires a secret"
        return ClientCredentials(url, client, secret, self.scope, TlsFiles(block, self.ca))

    @model_validator(mode="after")
    def _has_one_source(self) -> OAuth:
        sources = ("token_endpoint", "token_file", "callback")
        found = [name for name in sources if getattr(self, name) is not None]
        if len(found) != 1:
            raise ValueError("expected one of `token_endpoint`, `token_file` and `callback`")
        (source,) = found
        if "auth" in self.extensions:
            raise ValueError("expected no extension `auth`, which is the token itself")
        for name in _OF_ENDPOINT:
            if source != "token_endpoint" and getattr(self, name) is not None:
                raise ValueError(f"expected no `{name}` with `{source}`")
        if source != "token_endpoint":
            return self
        for name in ("client_id", "client_secret"):
            if getattr(self, name) is None:
                raise ValueError(f"expected `{name}` with `token_endpoint`")
        if self.java_class is not None:
            raise ValueError(
                "expected no `java_class` with `token_endpoint`: Kafka's Java client can ask a "
                "token endpoint itself"
            )
        if self.ca is not None and not str(self.token_endpoint).startswith("https:"):
            raise ValueError("expected no `ca` with a URL that begins with `http:`")
        return self
