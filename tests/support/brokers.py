"""The brokers that tests run against, and settings of those that more than one test starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from eos.local.embedded_kafka import EmbeddedKafka

# For transactions that timed out: many times a second, not every ten seconds.
LOOKS_OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


class Node(Protocol):
    @property
    def data(self) -> Path:
        """The folder of its logs."""


class Kafka(Protocol):
    """What a test with Spark asks of its broker. `EmbeddedKafka` is one."""

    tool: Callable[..., Any]  # runs one of Kafka's own command line classes

    @property
    def bootstrap(self) -> str: ...

    @property
    def nodes(self) -> Sequence[Node]: ...


def abandon(kafka: EmbeddedKafka) -> None:
    """Nobody needs its data any more, and a clean stop flushes the logs of hundreds of topics. But
    where its JVM lists classes (`eos/local/broker_node.py`) only a clean stop leaves an archive."""
    for node in kafka.nodes:
        if not (node.folder / "classes").exists():
            kafka.kill(node.number)


@dataclass(frozen=True)
class Elsewhere:
    """A cluster that somebody else runs."""

    bootstrap: str
    tool: Callable[..., Any]

    @property
    def nodes(self) -> Sequence[Node]:
        pytest.skip(f"all else holds; the logs of {self.bootstrap} are out of reach")
