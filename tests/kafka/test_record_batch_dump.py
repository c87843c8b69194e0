"""What the encoder wrote, as librdkafka, Kafka's own log dump and the broker itself see it."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer
from confluent_kafka import TopicPartition as RdTopicPartition
from kafka.record import MemoryRecords
from support.kafka import kafka_io

from eos.deadline import Deadline
from eos.encode.partitioner import by_key
from eos.encode.sink_spec import SinkSpec
from eos.encode.stage import EncodeStage
from eos.kafka.api import NO_IDENTITY, TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.kafka.records.columns import Columns, blobs
from eos.kafka.records.record_batch import encode, stamp
from eos.kafka.target_partitions import Targets
from eos.local.embedded_kafka import EmbeddedKafka

BASE_MS = 1_700_000_000_000
PARTITIONS = 3
HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def records(count: int) -> list[Record]:
    """All shapes in turn, different in each; the same at every call."""
    rng = random.Random(11)
    headers = [
        [],
        [("a", b"1")],
        [("same", b"1"), ("same", None), ("same", b"")],
        [("h", b"x")] * 70,
    ]
    keys = [None, b"", b"key", b"k" * 64, b"\xff\x00" * 40]
    values = [None, b"", b'{"a": 1}' * 20, b"v" * 8192]
    return [
        Record(
            key if (key := keys[i % 5]) is None or i % 2 else key + b"%d" % i,
            rng.randbytes(rng.randrange(400)) if i % 7 == 0 else values[i % 4],
            headers[i % 11 % 4],
            BASE_MS + rng.randrange(-90_000, 90_000),
        )
        for i in range(count)
    ]


def commit(
    client: KafkaClient, settled: Callable, topic: str, codec: Codec, some: list[Record]
) -> dict[int, list[tuple[int, int]]]:
    """One transaction: partition -> (records, digest) of each record batch, in order."""
    targets = Targets.of({topic: (PARTITIONS, 200_000)})  # several of a codec's blocks
    sink = SinkSpec(topic, codec=codec, timestamp_column="at")
    stage = EncodeStage((sink,), targets, n_writers=1, base_timestamp_ms=BASE_MS)
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([r.key for r in some], pa.binary()),
            "value": pa.array([r.value for r in some], pa.binary()),
            "headers": pa.array([r.headers for r in some], HEADER_LIST),
            "at": pa.array([r.timestamp_ms * 1000 for r in some], pa.timestamp("us")),
        }
    )
    within = Deadline.after_ms(300_000)
    started = settled(lambda: client.init_producer_id(topic, 60_000, NO_IDENTITY, within))
    assert started.error == 0
    sequences: dict[int, int] = defaultdict(int)
    sent: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for arrow in stage.encode(iter([batch]), 0):
        for row in arrow.to_pylist():
            if row["target"] < 0:
                continue
            target = row["target"]
            stamped = stamp(row["blob"], started.identity, sequences[target])
            sequences[target] += row["records"]
            there = TopicPartition(topic, target)
            answer = settled(lambda: client.produce(topic, {there: stamped}, within))  # noqa: B023
            assert answer[there].error == 0, answer
            sent[target].append((row["records"], row["digest"]))
    assert settled(lambda: client.end_txn(topic, started.identity, True, within)).error == 0
    return dict(sent)


def consume(bootstrap: str, topic: str, count: int) -> dict[int, list[Record]]:
    """By librdkafka, read_committed."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    )
    found = defaultdict(list)
    try:
        consumer.assign([RdTopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        left = count
        while left:
            messages = consumer.consume(left, timeout=300)
            assert messages, f"{left} of {count} records did not come"
            for message in messages:
                assert message.error() is None, message.error()
                kind, at = message.timestamp()
                assert kind == TIMESTAMP_CREATE_TIME
                found[message.partition()].append(
                    Record(message.key(), message.value(), message.headers() or [], at)
                )
            left -= len(messages)
    finally:
        consumer.close()
    return dict(found)


def segments(broker: EmbeddedKafka, topic: str, partition: int) -> list[Path]:
    """In offset order. The log rolls where timestamps are far apart: the marker has today's."""
    return sorted(broker.nodes[0].data.glob(f"{topic}-{partition}/*.log"))


_BATCH = re.compile(
    r"^baseOffset: .* count: (?P<count>\d+) .* isControl: (?P<control>\w+) .*"
    r"compresscodec: (?P<codec>\S+) .*isvalid: (?P<valid>\w+)"
)
# A marker's line is of another form: it has no headers.
_RECORD = re.compile(
    r"^\| offset: \d+ CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) .*"
    r"headerKeys: \[(.*?)\](?! endTxnMarker)"
)


@pytest.mark.parametrize("codec", Codec)
def test_librdkafka_and_kafkas_log_dump_find_what_went_in(
    codec: Codec, broker: EmbeddedKafka, client: KafkaClient, name: str, settled: Callable
) -> None:
    # The records are of 2023: retention by time would delete them while the test reads.
    client.create_topic(name, PARTITIONS, 1, {"retention.ms": "-1"}, Deadline.after_ms(300_000))
    some = records(1000)
    sent = commit(client, settled, name, codec, some)
    assert sum(count for batches in sent.values() for count, _ in batches) == len(some)

    read = consume(broker.bootstrap, name, len(some))
    everything = [record for partition in read.values() for record in partition]
    by_content = sorted(some, key=repr)
    assert sorted(everything, key=repr) == by_content
    order = {repr(record): number for number, record in enumerate(some)}
    for partition in read.values():
        keyed = [order[repr(record)] for record in partition if record.key]
        assert keyed == sorted(keyed)

    files = [path for partition in sorted(read) for path in segments(broker, name, partition)]
    dumped = broker.tool(
        *("org.apache.kafka.tools.DumpLogSegments", "--print-data-log"),
        *("--files", ",".join(map(str, files))),
    )
    assert dumped.returncode == 0, dumped.stderr
    lines = dumped.stdout.splitlines()
    batches = [found.groupdict() for line in lines if (found := _BATCH.match(line))]
    assert {batch["valid"] for batch in batches} == {"true"}
    data = [batch for batch in batches if batch["control"] == "false"]
    assert {batch["codec"] for batch in data} == {codec.name.lower()}
    counts = [count for partition in sorted(sent) for count, _ in sent[partition]]
    assert [int(batch["count"]) for batch in data] == counts
    assert [match.groups() for line in lines if (match := _RECORD.match(line))] == [
        (
            str(r.timestamp_ms),
            str(-1 if r.key is None else len(r.key)),
            str(-1 if r.value is None else len(r.value)),
            ",".join(name for name, _ in r.headers),
        )
        for partition in sorted(read)
        for r in read[partition]
    ]


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.NONE])
def test_the_digest_survives_recompression_and_log_append_time(
    codec: Codec, broker: EmbeddedKafka, client: KafkaClient, name: str, settled: Callable
) -> None:
    config = {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}
    client.create_topic(name, PARTITIONS, 1, config, Deadline.after_ms(300_000))
    sent = commit(client, settled, name, codec, records(300))
    for partition, expected in sent.items():
        log = b"".join(path.read_bytes() for path in segments(broker, name, partition))
        stored = MemoryRecords(log)
        found = []
        while stored.has_next():
            batch = stored.next_batch()
            if batch.is_control_batch:
                continue
            assert batch.compression_type == Codec.GZIP.value  # the broker did its part
            assert batch.timestamp_type == 1
            rows = list(batch)
            again = Columns(
                pa.array([r.key for r in rows], pa.binary()),
                pa.array([r.value for r in rows], pa.binary()),
                pa.array([r.headers for r in rows], HEADER_LIST),
            )
            found.append((len(rows), encode(again, Codec.NONE).digest))
        assert found == expected


def test_ten_thousand_keys_go_where_librdkafka_sends_them(
    broker: EmbeddedKafka, client: KafkaClient, name: str
) -> None:
    count = 37
    client.create_topic(name, count, 1, {}, Deadline.after_ms(300_000))
    rng = random.Random(12)
    keys = [b"", *(rng.randbytes(rng.randrange(1, 40)) for _ in range(9_999))]
    chosen: dict[int, int] = {}

    def delivered(number: int) -> Callable:
        def on_delivery(error: object, message: object) -> None:
            assert error is None
            chosen[number] = message.partition()

        return on_delivery

    producer = kafka_io.producer(broker.bootstrap, {"partitioner": "murmur2_random"})
    for number, key in enumerate(keys):
        producer.produce(name, key=key, value=b"", on_delivery=delivered(number))
    assert producer.flush(300) == 0
    ours = by_key(blobs(pa.array(keys, pa.binary()), "key"), count).tolist()
    assert ours == [chosen[number] for number in range(len(keys))]
    assert set(ours) == set(range(count))
