"""How does a run connect to a Kafka cluster: to the targets' cluster, or to that of the source?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eos.errors import UsageError
from eos.kafka.settings import KafkaSettings
from eos.plan.security import kafka_settings
from eos.suggestion import suggestion

if TYPE_CHECKING:
    from eos.config.model import Profile
    from eos.config.security import Security


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster's addresses, login and client properties.

    `name` is its key in the profile's `clusters`; empty for the cluster of the targets."""

    bootstrap: tuple[str, ...]
    security: Security | None = None
    client: Mapping[str, str] = field(default_factory=dict)  # properties of both Kafka clients
    name: str = ""

    @property
    def kafka(self) -> KafkaSettings:
        """The connection settings of kafka-python."""
        return kafka_settings(self.bootstrap, self.security, self.client)


def named_cluster(name: str | None, profile: Profile, pipeline: str) -> Connection | None:
    """Return the connection of one of the profile's clusters; None without a name.

    Raise UsageError if the profile has no such cluster."""
    if name is None:
        return None
    found = profile.clusters.get(name)
    if found is None:
        known = ", ".join(sorted(profile.clusters)) or "none"
        did_you_mean = suggestion(name, profile.clusters)
        raise UsageError(
            "source_cluster_unknown",
            f"{pipeline}: `source.kafka.cluster` is {name!r}, but profile {profile.name!r} has no "
            f"such cluster{did_you_mean}",
            hint=f"declare it in the profile: `clusters: {{{name}: {{bootstrap: HOST:9092}}}}`; "
            f"declared are: {known}",
            cluster=name,
        )
    return Connection(tuple(found.bootstrap), found.security, found.client, name)
