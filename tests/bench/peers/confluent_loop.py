"""An exactly-once loop with confluent-kafka, in one process, as a user would write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

POLL = 10_000
QUIET_S_MAX = 60  # a bound, not a measure
# As the tuned sink of Spark has it.
LINGER_MS, BATCH_BYTES, COMPRESSION = 20, 262_144, "lz4"


def confluent(
    bootstrap: str,
    source: str,
    target: str,
    records: int,
    batch: int,
    step: Callable[[Any], Iterable[tuple[str, bytes]]] | None = None,
) -> int:
    """Copy the records. `step` returns the topics and values that a record becomes."""
    from confluent_kafka import Consumer, Producer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": target,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # When its queue of fetched records was full, librdkafka would wait a second.
            "fetch.queue.backoff.ms": 10,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": target,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "compression.type": COMPRESSION,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 500_000,
        }
    )
    producer.init_transactions()
    consumer.subscribe([source])
    done = 0
    while done < records:
        producer.begin_transaction()
        wanted = min(batch, records - done)
        while wanted:
            messages = consumer.consume(min(POLL, wanted), QUIET_S_MAX)
            assert messages, f"nothing came for {QUIET_S_MAX} s, after {done} records"
            for message in messages:
                assert message.error() is None, message.error()
                for topic, value in step(message) if step else ((target, message.value()),):
                    produced(producer, topic, message, value)
            producer.poll(0)
            wanted -= len(messages)
            done += len(messages)
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()
    consumer.close()
    return done


def produced(producer: Any, target: str, message: Any, value: bytes) -> None:
    """A full queue refuses: then it is waited for, as the client's own examples do."""
    while True:
        try:
            producer.produce(target, value, message.key(), headers=message.headers())
        except BufferError:
            producer.poll(1)
        else:
            return
