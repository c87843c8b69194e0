"""The profile's block `registry`: address and login of a schema registry."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from eos.config.base import Strict
from eos.config.oauth import OAuth
from eos.config.references import USER_PATTERN, Password, PemFile
from eos.login.addresses import is_encrypted, is_url

HEADER_PATTERN = r"^[A-Za-z0-9-]{1,100}$"
VALUE_PATTERN = r"^[!-~]([ -~]{0,998}[!-~])?$"
# Headers that the client sets itself.
_OWN_HEADERS = {"accept", "authorization", "connection", "content-length", "content-type", "host"}
_OWN_HEADERS |= {"accept-encoding", "proxy-authorization", "transfer-encoding"}


def _url(text: str) -> str:
    if not is_url(text):
        raise ValueError(
            "expected the address of a schema registry, such as `http://registry:8081`, without a "
            "user: `user` and `password` are keys of their own"
        )
    return text.rstrip("/")


class Registry(Strict):
    """A schema registry with Confluent's API. Only the driver sends requests to it.

    A login is `user` and `password`, a bearer `token`, or `oauth`. The server may ask for a
    `certificate` as well, or instead. `headers` are sent with each request; a value is no secret.
    """

    url: Annotated[str, AfterValidator(_url)]
    user: Annotated[str, Field(pattern=USER_PATTERN)] | None = None
    password: Password | None = None
    token: Password | None = None
    oauth: OAuth | None = None
    ca: PemFile | None = None
    certificate: PemFile | None = None
    key: PemFile | None = None
    headers: dict[
        Annotated[str, Field(pattern=HEADER_PATTERN)],
        Annotated[str, Field(pattern=VALUE_PATTERN)],
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_together(self) -> Registry:
        if (self.user is None) != (self.password is None):
            raise ValueError("expected both `user` and `password`, or neither")
        logins = {"`user` and `password`": self.user, "`token`": self.token, "`oauth`": self.oauth}
        found = [name for name, value in logins.items() if value is not None]
        if len(found) > 1:
            names = " and ".join(found)
            raise ValueError(f"expected one login, got {names}")
        if found and not is_encrypted(self.url):
            raise ValueError(
                f"expected an address that begins with `https:` with {found[0]}: `http:` would "
                "send them unencrypted"
            )
        for name in ("ca", "certificate", "key"):
            if getattr(self, name) is not None and not self.url.startswith("https:"):
                raise ValueError(f"expected no `{name}` with an address that begins with `http:`")
        if self.key is not None and self.certificate is None:
            raise ValueError("expected `certificate` with `key`")
        if self.oauth is not None and self.oauth.java_class is not None:
            raise ValueError("expected no `java_class`: no Java client asks the registry")
        if self.oauth is not None and self.oauth.extensions:
            raise ValueError("expected no `extensions`, which are Kafka's: use `headers`")
        for name in self.headers:
            if name.lower() in _OWN_HEADERS:
                raise ValueError(f"expected no header `{name}`: the client sets it itself")
        return self
