"""Which cluster does a profile use: the one that it names, or the embedded broker?"""

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
    """Yield the addresses of the profile's cluster; start the embedded broker if it names none.

    A running embedded broker is shared, as pipelines do. If it was started here, it stops at the
    end."""
    if profile.kafka.bootstrap is not None:
        yield tuple(profile.kafka.bootstrap)
        return
    ensure_java()
    with EmbeddedKafka(profile.local_root / "broker") as kafka:
        yield tuple(kafka.bootstrap.split(","))
