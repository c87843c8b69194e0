"""Where Avro schemas are registered, and who asks."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from eos.config.base import Strict
from eos.config.security import USER_PATTERN, Password, PemFile

_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")


def _url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise ValueError(
            "expected the address of a schema registry, such as `http://registry:8081`, without a "
            "user: `user` and `password` stand beside it"
        )
    return text.rstrip("/")


class Registry(Strict):
    """A schema registry with the API that Confluent's has. Only the driver asks it."""

    url: Annotated[str, AfterValidator(_url)]
    user: Annotated[str, Field(pattern=USER_PATTERN)] | None = None
    password: Password | None = None
    ca: PemFile | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Registry:
        if (self.user is None) != (self.password is None):
            raise ValueError("expected `user` and `password`, or none of them")
        if self.ca is not None and not self.url.startswith("https:"):
            raise ValueError("expected no `ca` beside an address that begins with `http:`")
        return self
