"""The profile's block `registry`: address and login of a schema registry."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from eos.config.base import Strict
from eos.config.security import USER_PATTERN, Password, PemFile

_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")


def _url(text: str) -> str:
    if not _URL.fullmatch(text) or not _has_port(text):
        raise ValueError(
            "expected the address of a schema registry, such as `http://registry:8081`, without a "
            "user: `user` and `password` are keys of their own"
        )
    return text.rstrip("/")


def _has_port(text: str) -> bool:
    """Return whether the address has a valid port or no port."""
    try:
        return urlsplit(text).port != 0
    except ValueError:
        return False


def is_own_machine(host: str) -> bool:
    """Return whether requests to this host never leave this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Registry(Strict):
    """A schema registry with Confluent's API. Only the driver sends requests to it."""

    url: Annotated[str, AfterValidator(_url)]
    user: Annotated[str, Field(pattern=USER_PATTERN)] | None = None
    password: Password | None = None
    ca: PemFile | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Registry:
        if (self.user is None) != (self.password is None):
            raise ValueError("expected both `user` and `password`, or neither")
        is_plain = self.url.startswith("http:")
        if is_plain and self.user and not is_own_machine(urlsplit(self.url).hostname or ""):
            raise ValueError(
                "expected an address that begins with `https:` with `user` and `password`: `http:` "
                "would send them unencrypted"
            )
        if self.ca is not None and not self.url.startswith("https:"):
            raise ValueError("expected no `ca` with an address that begins with `http:`")
        return self
