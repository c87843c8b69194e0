"""Records with headers, as librdkafka writes and reads them; shares no code with `eos`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from support import outside

Headers = tuple[tuple[str, "bytes | None"], ...]


@dataclass(frozen=True)
class Record:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def told(self) -> dict[str, str]:
        """What the headers of a dead letter say."""
        return {name: value.decode() for name, value in self.headers if name.startswith("eos.")}


def write(bootstrap: str, topic: str, records: Iterable[Record], codec: str = "none") -> None:
    settings = {**outside.IN_ORDER, "bootstrap.servers": bootstrap, "log_level": 3}
    producer = Producer({**settings, "compression.type": codec})
    for each in records:
        producer.produce(
            topic,
            each.value,
            each.key,
            each.partition,
            timestamp=each.timestamp_ms,
            headers=list(each.headers) or None,
        )
    assert producer.flush(300) == 0


def read(bootstrap: str, topic: str) -> list[Record]:
    """As `outside.read`: everything that is committed, in partition and offset order."""
    rows = outside.read(bootstrap, topic)
    settings = {"bootstrap.servers": bootstrap, "group.id": "outside"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    found: list[Record] = []
    try:
        for partition in sorted({row.partition for row in rows}):
            count = sum(row.partition == partition for row in rows)
            consumer.assign([TopicPartition(topic, partition, 0)])
            while count:
                messages = consumer.consume(count, timeout=300)
                assert messages, f"{topic}-{partition}: {count} records did not come"
                for message in messages:
                    assert message.error() is None, message.error()
                    headers = tuple(message.headers() or ())
                    at = message.timestamp()[1]
                    found.append(Record(partition, message.key(), message.value(), headers, at))
                    count -= 1
    finally:
        consumer.close()
    return found
