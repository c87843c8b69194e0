"""The cluster of a profile: its own, or the embedded broker, for as long as it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eos.launch.java_and_jars import ensure_java
from eos.local.embedded_kafka import EmbeddedKafka

if TYPE_CHECKING:
    from eos.config.model import ProfileFile


@contextmanager
def addresses(profile: ProfileFile) -> Iterator[tuple[str, ...]]:
    """A broker that runs is shared, as pipelines do; one that was started here stops at the end."""
    if profile.kafka.bootstrap is not None:
        yield tuple(profile.kafka.bootstrap)
        return
    ensure_java()
    with EmbeddedKafka(profile.local_root / "broker") as kafka:
        yield tuple(kafka.bootstrap.split(","))
