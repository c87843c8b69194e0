"""The Kafka cluster of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka cluster: its addresses, and how to log in there.

    `bootstrap` has one address or more, as `host:port`. `security`, `client` and `registry` are
    mappings with the keys that `kafka.security`, `kafka.client` and `registry` have in a profile.
    As there, a password is a reference such as `${KAFKA_PASSWORD}`, and never the password itself.
    """

    bootstrap: str | Sequence[str]
    security: Mapping[str, Any] | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    registry: Mapping[str, Any] | None = None

    def as_profile(self) -> dict[str, Any]:
        """Return the keys of a profile for this cluster."""
        addresses = self.bootstrap if isinstance(self.bootstrap, str) else list(self.bootstrap)
        kafka: dict[str, Any] = {"bootstrap": addresses}
        if self.security is not None:
            kafka["security"] = dict(self.security)
        if self.client:
            kafka["client"] = dict(self.client)
        return {"kafka": kafka} | ({"registry": dict(self.registry)} if self.registry else {})
