"""Loops without Spark that are exactly once, too: consume, produce, offsets, commit, again.

What a person would write with each of the two Kafka clients of Python, in one process. It is
started as `loops.py CLIENT SETTINGS.json`, and prints its own largest memory, in MB.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
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


def kafka_python(bootstrap: str, source: str, target: str, records: int, batch: int) -> int:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=target,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=POLL,
    )
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=target,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        compression_type=COMPRESSION,
    )
    producer.init_transactions()
    done = 0
    while done < records:
        producer.begin_transaction()
        until, positions = min(records, done + batch), {}
        while done < until:
            polled = consumer.poll(QUIET_S_MAX * 1000, max_records=min(POLL, until - done))
            assert polled, f"nothing came for {QUIET_S_MAX} s, after {done} records"
            for partition, found in polled.items():
                for record in found:
                    producer.send(target, record.value, record.key, headers=record.headers)
                positions[partition] = OffsetAndMetadata(found[-1].offset + 1, "", -1)
                done += len(found)
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        producer.commit_transaction()
    producer.close()
    consumer.close()
    return done


LOOPS = {"confluent": confluent, "kafka_python": kafka_python}


def main() -> None:
    settings = json.loads(Path(sys.argv[2]).read_text())
    done = LOOPS[sys.argv[1]](**settings)
    peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    print(json.dumps({"records": done, "python_mb": round(int(peak) / 1024)}))


if __name__ == "__main__":
    main()
