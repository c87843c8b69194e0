"""Much data, fast: source topics for benchmarks and for tests of what does not grow with it."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer

from support import outside
from support.outside import create_topics


def fill_topic(
    bootstrap: str,
    topic: str,
    rows: tuple[Sequence[bytes], Sequence[bytes]],
    count: int,
    partitions: int = 4,
) -> None:
    """`count` records: keys and values of `rows`, again and again. lz4, by Kafka's partitioner."""
    create_topics(bootstrap, partitions, topic)
    producer = Producer(
        {
            **outside.IN_ORDER,
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 500_000,
            "log_level": 3,
        }
    )
    keys, values = rows
    for start in range(0, count, len(keys)):
        for key, value in zip(keys[: count - start], values, strict=False):
            producer.produce(topic, value, key)
        assert producer.flush(300) == 0
