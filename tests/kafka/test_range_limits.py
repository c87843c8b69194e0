"""What bounds a reader of offset ranges: a quota of the broker, and memory."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from support.kafka import kafka_io
from support.kafka.varied_topics import expected, ranges_of, read_ranges

from eos.deadline import Deadline
from eos.kafka import fetch_wire, record_reader
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.exclusive_connection import ExclusiveConnection
from eos.kafka.fetch import fetch_once
from eos.kafka.fetch_wire import FetchResponse
from eos.kafka.settings import KafkaSettings
from eos.local.embedded_kafka import EmbeddedKafka

# The broker averages over ten seconds, so this much is read at once, and the rest is throttled.
QUOTA, TOPIC_BYTES = 200_000, 2_600_000
MB = 1 << 20


def fill(bootstrap: str, topic: str, size: int, value_bytes: int) -> None:
    """Incompressible records, in record batches of at most 100 kB."""
    kafka_io.create_topics(bootstrap, 2, topic)
    chance = random.Random(size)
    writer = kafka_io.producer(bootstrap, {"batch.size": 100_000, "linger.ms": 50})
    for number in range(size // value_bytes):
        writer.produce(topic, chance.randbytes(value_bytes), b"%d" % number, number % 2)
        writer.poll(0)
    assert writer.flush(300) == 0


@pytest.fixture
def limited(client: KafkaClient, broker: EmbeddedKafka, name: str) -> Iterator[KafkaClient]:
    """A client whose id may read QUOTA; no other client is touched."""

    def alter(*, remove: bool) -> None:
        entry = AlterClientQuotasRequest.EntryData
        entity = entry.EntityData(entity_type="client-id", entity_name=name)
        change = entry.OpData(key="consumer_byte_rate", value=QUOTA, remove=remove)
        response = client._cluster.query_any(
            lambda: AlterClientQuotasRequest(
                version=1, entries=[entry(entity=[entity], ops=[change])], validate_only=False
            ),
            Deadline.after_ms(300_000),
        )
        assert [one.error_code for one in response.entries] == [0]

    alter(remove=False)
    made = KafkaClient(KafkaSettings((broker.bootstrap,), client_id=name))
    try:
        yield made
    finally:
        made.close()
        alter(remove=True)


@pytest.mark.long
def test_a_throttled_reader_sends_nothing_before_its_time(
    broker: EmbeddedKafka, limited: KafkaClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap, name, TOPIC_BYTES, 5_000)
    early: list[float] = []
    throttled_ms: list[int] = []
    send, parse = ExclusiveConnection.send, fetch_wire.fetch_response

    def watched(connection: ExclusiveConnection, frame: bytes, deadline: Deadline) -> None:
        if connection.resume_at > time.monotonic():
            early.append(connection.resume_at)
        send(connection, frame, deadline)

    def parsed(view: memoryview, correlation: int) -> FetchResponse:
        response = parse(view, correlation)
        throttled_ms.append(response.throttle_ms)
        return response

    monkeypatch.setattr(ExclusiveConnection, "send", watched)
    monkeypatch.setattr(fetch_wire, "fetch_response", parsed)
    ranges = ranges_of(broker.bootstrap, [name])
    rows = read_ranges(limited, ranges, fetch_bytes=QUOTA)
    assert rows == expected(broker.bootstrap, ranges)
    assert early == []
    assert sum(throttled_ms) > 0


def test_a_throttled_reader_of_single_records_waits_and_reads_all(
    broker: EmbeddedKafka, limited: KafkaClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a ledger. A throttled response has no partitions."""
    fill(broker.bootstrap, name, TOPIC_BYTES, 5_000)
    found: list[object] = []

    def watched(*args: Any) -> Any:
        found.append(fetch_once(*args))
        return found[-1]

    monkeypatch.setattr(record_reader, "fetch_once", watched)
    end = TOPIC_BYTES // 5_000 // 2
    for number in range(2):
        tp, deadline = TopicPartition(name, number), Deadline.after_ms(300_000)
        records = limited.read_records(tp, 0, end, committed=True, deadline=deadline)
        assert [each.offset for each in records] == list(range(end))
    assert None in found


_CHILD = """
import resource, sys
from eos.deadline import Deadline
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.range_fetcher import Range
from eos.kafka.range_reader import read_columns
from eos.kafka.settings import KafkaSettings

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

client = KafkaClient(KafkaSettings((sys.argv[1],)))
partitions = [TopicPartition(sys.argv[2], number) for number in range(2)]
ends = client.list_offsets(partitions, "latest", committed=True, deadline=Deadline.after_ms(300000))

def read(records_max):
    ranges = [Range(tp, 0, min(records_max, ends[tp])) for tp in partitions]
    reader = read_columns(client.fetch_ranges(ranges, fetch_bytes=1 << 20), bytes_max=1 << 20)
    return sum(batch.num_rows for batch in reader)

few = read(100)
before = peak()
print(few, read(1 << 40), peak() - before)
client.close()
"""


def test_memory_does_not_grow_with_the_ranges(broker: EmbeddedKafka, name: str) -> None:
    size, each = 64 * MB, 10_000
    fill(broker.bootstrap, name, size, each)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, broker.bootstrap, name],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    few, records, grown_kb = map(int, done.stdout.split())
    assert (few, records) == (200, size // each)
    assert grown_kb < 16 * 1024
