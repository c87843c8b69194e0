"""Topics with everything that a reader may meet, and what librdkafka reads of them.

    varied = VariedTopics.made(bootstrap)
    varied.ranges      each partition from its start to its last stable offset
    expected(bootstrap, varied.ranges) == read_ranges(client, varied.ranges)

- transactions: of three producers that take turns; some abort, and one stays open at the end
- codecs: record batches of each codec, of one record and of many
- shapes: records without key, value or headers; with repeated, empty and null headers; a tombstone
- large: records of 10 MB and more, one of them incompressible
- append time: the broker sets the timestamps
- compacted: most records are gone, and a record batch is empty
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, OffsetSpec

from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.range_fetcher import Range
from eos.kafka.range_reader import read_columns
from support.kafka import kafka_io
from support.kafka.kafka_io import NOW_MS
from support.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ASK_S, _READ_S = 180, 300
_LARGE = 10_000_000
_KEYS = 20


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    timestamp_type: int  # as in Spark: 0 if the producer set it, 1 if the broker did
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class VariedTopics:
    bootstrap: str
    name: str = field(default_factory=lambda: f"varied-{uuid.uuid4().hex[:8]}")
    ranges: list[Range] = field(default_factory=list)
    _open: list[Producer] = field(default_factory=list)  # whose last transaction stays open

    @classmethod
    def made(cls, bootstrap: str) -> VariedTopics:
        topics = cls(bootstrap)
        topics.compacted()
        topics.transactions()
        topics.codecs()
        topics.shapes()
        topics.large()
        topics.append_time()
        topics.wait_compacted()
        topics.ranges = ranges_of(bootstrap, topics.names)
        return topics

    @property
    def names(self) -> list[str]:
        of = ("compacted", "transactions", "codecs", "shapes", "large", "append-time")
        return [f"{self.name}.{each}" for each in of]

    def topic(self, of: str, partitions: int = 1, **config: str) -> str:
        topic = f"{self.name}.{of}"
        kafka_io.create_topics(self.bootstrap, partitions, topic)
        if config:
            kafka_io.set_topic(self.bootstrap, topic, **config)
        return topic

    def transactions(self) -> None:
        """Three partitions. The transactions of two producers overlap; a third has none."""
        topic, chance = self.topic("transactions", 3), random.Random(3)
        first, second = (self._transactional(number) for number in range(2))
        plain = kafka_io.producer(self.bootstrap)
        counter = itertools.count()
        for round_ in range(12):
            writers = [first, second] if round_ % 3 else [first]
            for each in writers:
                each.begin_transaction()
            for _ in range(30):
                writer = chance.choice([*writers, plain])
                number = next(counter)
                writer.produce(topic, b"%d" % number, b"k%d" % number, chance.randrange(3))
                writer.flush(_READ_S)  # so that record batches of the producers alternate
            for at, each in enumerate(writers):
                if (round_ + at) % 2:
                    each.abort_transaction(_READ_S)
                else:
                    each.commit_transaction(_READ_S)
        kafka_io.wait_closed(self.bootstrap, topic)
        first.begin_transaction()
        for partition in (0, 1):
            first.produce(topic, b"open", b"open", partition)
        plain.produce(topic, b"after an open transaction", None, 0)
        first.flush(_READ_S)
        plain.flush(_READ_S)
        self._open.append(first)

    def codecs(self) -> None:
        topic = self.topic("codecs")
        for codec in CODECS:
            writer = kafka_io.producer(self.bootstrap, {"compression.type": codec, "linger.ms": 50})
            for number in range(3_000):
                value = b"%s %d " % (codec.encode(), number) * (number % 7)
                writer.produce(topic, value, b"k%d" % number, 0, timestamp=NOW_MS + number)
            writer.flush(_READ_S)
            writer.produce(topic, b"alone", codec.encode(), 0)
            writer.flush(_READ_S)

    def shapes(self) -> None:
        topic = self.topic("shapes", 2)
        writer = kafka_io.producer(self.bootstrap, {"compression.type": "lz4"})
        headers: tuple[Any, ...] = (
            None,
            [("a", b"1")],
            [("a", b"1"), ("a", b"2"), ("b", None), ("a", b"1")],
            [("", b""), ("empty", b""), ("\u00fcml", "\u00e4".encode())],
        )
        bodies = (None, b"", b"x", bytes(range(256)))
        for number, (key, value, header) in enumerate(itertools.product(bodies, bodies, headers)):
            at = NOW_MS - number * 1000  # older and older: negative deltas
            writer.produce(topic, value, key, number % 2, timestamp=at, headers=header)
        writer.flush(_READ_S)

    def large(self) -> None:
        topic = self.topic("large", max_message_bytes=str(2 * _LARGE))
        sizes = {"message.max.bytes": 2 * _LARGE, "compression.type": "lz4"}
        writer = kafka_io.producer(self.bootstrap, sizes)
        chance = random.Random(5)
        for value in (b"a", bytes(_LARGE), b"b", chance.randbytes(_LARGE), b"c" * 5000):
            writer.produce(topic, value, b"large", 0)
            writer.flush(_READ_S)

    def append_time(self) -> None:
        topic = self.topic("append-time", message_timestamp_type="LogAppendTime")
        writer = kafka_io.producer(self.bootstrap, {"compression.type": "gzip"})
        for number in range(50):
            writer.produce(topic, b"%d" % number, None, 0, timestamp=NOW_MS - 5_000)
            if number % 7 == 0:
                writer.flush(_READ_S)
        writer.flush(_READ_S)

    def compacted(self) -> None:
        """The cleaner keeps the last record of each key, and the last record batch of a producer
        without records, for its sequence."""
        topic = self.topic(
            "compacted",
            cleanup_policy="compact",
            segment_bytes="1048576",
            min_cleanable_dirty_ratio="0.001",
            max_compaction_lag_ms="1",
        )
        for at in range(4):
            writer = kafka_io.producer(self.bootstrap, {"compression.type": CODECS[at]})
            for number in range(60):
                writer.produce(topic, b"%d/%d" % (at, number), b"k%d" % (number % _KEYS), 0)
                if number % 25 == 0:
                    writer.flush(_READ_S)
            writer.flush(_READ_S)
        # The active segment is not cleaned: fill it, so that the next record begins another one.
        writer = kafka_io.producer(self.bootstrap)
        for _ in range(3):
            writer.produce(topic, bytes(600_000), b"filler", 0)
            writer.flush(_READ_S)

    def wait_compacted(self) -> None:
        topic = self.names[0]

        def left() -> int:
            return len(expected(self.bootstrap, ranges_of(self.bootstrap, [topic])))

        wait_until(lambda: left() <= _KEYS + 3, lambda: f"{left()} records of {topic} are left")

    def _transactional(self, number: int) -> Producer:
        settings = {"transactional.id": f"{self.name}-{number}", "enable.idempotence": True}
        made = kafka_io.producer(self.bootstrap, settings)
        made.init_transactions(_READ_S)
        return made


def ranges_of(bootstrap: str, topics: Iterable[str]) -> list[Range]:
    """Each partition from its first offset to its last stable one."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    known = kafka_io.answered(lambda: admin.list_topics(timeout=_ASK_S)).topics
    places = [Place(topic, number) for topic in topics for number in known[topic].partitions]

    def offsets(spec: OffsetSpec) -> Mapping[Place, int]:
        isolation = IsolationLevel.READ_COMMITTED
        asked = admin.list_offsets(dict.fromkeys(places, spec), isolation_level=isolation)
        return {place: done.result(_ASK_S).offset for place, done in asked.items()}

    starts, ends = offsets(OffsetSpec.earliest()), offsets(OffsetSpec.latest())
    return [Range(TopicPartition(at.topic, at.partition), starts[at], ends[at]) for at in places]


def expected(bootstrap: str, ranges: Iterable[Range]) -> list[Row]:
    """What a read_committed consumer of librdkafka reads, in the ranges' order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "outside",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "fetch.message.max.bytes": 4 * _LARGE,
            "receive.message.max.bytes": 100_000_000,
        }
    )
    try:
        return [row for each in ranges for row in _rows(consumer, each)]
    finally:
        consumer.close()


def _rows(consumer: Consumer, of: Range) -> Iterator[Row]:
    """Up to the end of the log: positions don't show that all else up to the end is hidden."""
    (topic, partition), start, end = of
    consumer.assign([Place(topic, partition, start or OFFSET_BEGINNING)])
    while True:
        message = consumer.poll(_READ_S)
        assert message is not None, f"{of}: nothing came"
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            return
        assert error is None, error
        kind, at = message.timestamp()
        if start <= message.offset() < end:
            headers = tuple(message.headers() or ())
            offset, key, value = message.offset(), message.key(), message.value()
            yield Row(topic, partition, offset, key, value, at, int(kind == 2), headers)


def read_ranges(client: KafkaClient, ranges: Sequence[Range], **options: Any) -> list[Row]:
    """What this project's reader reads."""
    sizes = {name: options.pop(name) for name in ("rows_max", "bytes_max") if name in options}
    return rows_of(read_columns(client.fetch_ranges(ranges, **options), **sizes))


def rows_of(read: Iterable[pa.RecordBatch]) -> list[Row]:
    return [row for batch in read for row in _of_batch(batch)]


def _of_batch(batch: pa.RecordBatch) -> Iterator[Row]:
    of = {
        name: batch.column(name).to_pylist() for name in batch.schema.names if name != "timestamp"
    }
    at = batch.column("timestamp").cast(pa.int64()).to_pylist()
    for row in range(batch.num_rows):
        headers = tuple((each["key"], each["value"]) for each in of["headers"][row] or ())
        yield Row(
            of["topic"][row],
            of["partition"][row],
            of["offset"][row],
            of["key"][row],
            of["value"][row],
            at[row] // 1000,
            of["timestampType"][row],
            headers,
        )
