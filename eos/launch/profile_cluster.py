"""The Kafka cluster of a profile: the one in `kafka.bootstrap`, else the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eos.launch.java_wheel import ensure_java
from eos.local.embedded_kafka import EmbeddedKafka

if TYPE_CHECKING:
    from eos.config.model import ProfileFile


@contextmanager
def addresses(profile: ProfileFile) -> Iterator[tuple[str, ...]]:
    """Yield the addresses of the profile's brokers.

    Without `kafka.bootstrap` they are those of the embedded broker. It is started if it does not
    run, and then stopped at the end of the context."""
    if profile.kafka.bootstrap is not None:
        yield tuple(profile.kafka.bootstrap)
        return
    ensure_java()
    with EmbeddedKafka(profile.local_root / "broker") as kafka:
        yield tuple(kafka.bootstrap.split(","))
