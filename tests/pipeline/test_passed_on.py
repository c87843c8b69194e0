"""A record comes out as it went in: key, value and headers, present, empty or null."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from confluent_kafka import Consumer, TopicPartition
from support.kafka import kafka_io
from support.spark.project import Project

PIPELINE = """
version: 1
name: {name}
source: {{kafka: {{topic: {source}, max_records: {records}}}}}
sink: {{kafka: {{topic: {target}, create: {{partitions: {partitions}}}}}}}
trigger: {{available_now: true}}
"""

Headers = tuple[tuple[str, bytes | None], ...]
Record = tuple[bytes | None, bytes | None, Headers]

HEADERS: tuple[Headers, ...] = (
    (),
    (("trace", b"1"),),
    (("twice", b"1"), ("twice", b"2"), ("empty", b""), ("null", None)),
)
PLAIN = ((None, b"no key"), (b"", b"empty key"), (b"k", None), (b"k", b""), (b"k", b"v"))


def records() -> Iterable[Record]:
    for headers in HEADERS:
        for key, value in PLAIN:
            yield key, value, headers
            # Many without headers between two that have some.
            yield from ((b"k%d" % number, b"v", ()) for number in range(200))


def read(bootstrap: str, topic: str, partitions: int) -> Counter[Record]:
    found: Counter[Record] = Counter()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "outside",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        still_open = set(range(partitions))
        while still_open:
            (message,) = consumer.consume(1, timeout=300)
            if message.error() is not None:
                assert message.error().code() == -191, message.error()  # _PARTITION_EOF
                still_open.discard(message.partition())
            else:
                found[message.key(), message.value(), tuple(message.headers() or ())] += 1
    finally:
        consumer.close()
    return found


def test_key_value_and_headers(project: Project) -> None:
    bootstrap = project.broker.bootstrap
    project.declare(1_000, text=PIPELINE)
    kafka_io.create_topics(bootstrap, 4, project.source)
    producer = kafka_io.producer(bootstrap)
    for key, value, headers in records():
        producer.produce(project.source, value, key, headers=list(headers))
    assert producer.flush(300) == 0
    done = project.run_warm()
    assert done.returncode == 0, done.stderr
    assert read(bootstrap, project.target, 4) == Counter(records())
