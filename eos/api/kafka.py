"""The Kafka cluster of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eos.errors import UsageError

SOURCE_CLUSTER = "source"  # the name of a job's other cluster in `clusters` of a profile


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


def as_profile(name: str, source: Kafka, target: Kafka | None) -> dict[str, Any]:
    """Return the keys of a profile for a job that reads from one cluster and writes to another.

    `target` is None if there is one cluster. Raise UsageError if both have a schema registry, and
    these differ: a job has one.
    """
    if target is None or target == source:
        return source.as_profile()
    if source.registry and target.registry and source.registry != target.registry:
        raise UsageError(
            "job_registries_differ",
            f"the job {name!r} has one schema registry for its source's cluster, and another one "
            "for that of its targets",
            hint="pass one registry to both, or to one of them, which is then used for both",
        )
    registry = target.registry or source.registry
    found = target.as_profile() | {"clusters": {SOURCE_CLUSTER: source.as_profile()["kafka"]}}
    return found | ({"registry": dict(registry)} if registry else {})
