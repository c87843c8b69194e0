"""Peers are fetched only if somebody asks for them: `./tests/run bench -k peers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kafka.brokers import abandon

from eos.local.embedded_kafka import EmbeddedKafka

HERE = Path(__file__).parent
# The JVM options of Kafka's own start scripts. By default, the embedded broker has no optimizing
# compiler. So it starts faster, but each record costs it more, and all systems take longer.
KAFKA_OPTIONS = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker as in production."""
    with EmbeddedKafka(tmp_path_factory.mktemp("broker"), java_options=KAFKA_OPTIONS) as kafka:
        yield kafka
        abandon(kafka)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "peers" in config.getoption("keyword"):
        return
    ours = [item for item in items if item.path.parent == HERE]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]
