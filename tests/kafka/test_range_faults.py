"""Reading offset ranges while answers are lost, and from logs with lost or damaged records."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import google_crc32c
import pytest
from confluent_kafka.admin import AdminClient
from support.copies.scenes import ProxiedKafka
from support.errors import raises
from support.kafka import kafka_io
from support.kafka.brokers import SegmentBatch, edit_log
from support.kafka.proxy_rules import Do
from support.kafka.varied_topics import expected, ranges_of, read_ranges

from eos.errors import AttemptFailedError, PromiseBrokenError, UnavailableError
from eos.kafka.api import NO_IDENTITY, TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.range_fetcher import Range
from eos.kafka.settings import KafkaSettings
from eos.local.embedded_kafka import EmbeddedKafka

RECORDS, FETCH_BYTES = 4_000, 70_000
FAULTS = (
    Do.CLOSE_BEFORE,
    Do.CLOSE_AFTER,
    Do.LOSE_ANSWER,
    Do.HALF_ANSWER,
    Do.GARBAGE_ANSWER,
    Do.OTHER_ANSWER,
    Do.DROP_REQUEST,
    Do.DROP_ANSWER,
)


@pytest.fixture
def proxied_topic(proxied: ProxiedKafka, name: str) -> str:
    kafka_io.create_topics(proxied.bootstrap, 3, name)
    writer = kafka_io.producer(proxied.bootstrap, {"batch.size": 20_000})
    for number in range(RECORDS):
        writer.produce(name, b"%d." % number * 60, b"%d" % number)
    assert writer.flush(300) == 0
    return name


@pytest.fixture
def reader(proxied: ProxiedKafka) -> Iterator[KafkaClient]:
    """It does not wait long for an answer that never comes."""
    made = KafkaClient(KafkaSettings((proxied.bootstrap,), "reader", request_timeout_ms=1_000))
    yield made
    made.close()


def links(proxied: ProxiedKafka) -> list[int]:
    """The connection of each Fetch request of the reader."""
    return [e.link for e in proxied.proxy.seen if (e.api, e.client) == ("Fetch", "reader")]


@pytest.mark.parametrize("do", FAULTS)
def test_after_a_fault_the_rest_is_read_once(
    proxied: ProxiedKafka, proxied_topic: str, reader: KafkaClient, do: Do
) -> None:
    ranges = ranges_of(proxied.bootstrap, [proxied_topic])
    rows = expected(proxied.bootstrap, ranges)
    assert len(rows) == RECORDS
    faults = [proxied.proxy.rule("Fetch", do, client="reader", nth=at) for at in (1, 3)]
    assert read_ranges(reader, ranges, fetch_bytes=FETCH_BYTES) == rows
    assert all(fault.struck for fault in faults)


def test_one_request_reads_many_small_partitions_and_the_next_task_reuses_the_connection(
    proxied: ProxiedKafka, reader: KafkaClient, name: str
) -> None:
    kafka_io.create_topics(proxied.bootstrap, 50, name)
    kafka_io.fill(proxied.bootstrap, name, range(1_000))
    ranges = ranges_of(proxied.bootstrap, [name])
    rows = expected(proxied.bootstrap, ranges)
    for _ in range(3):
        assert read_ranges(reader, ranges) == rows
    assert len(links(proxied)) == 3
    assert len(set(links(proxied))) == 1


def test_a_reader_that_stops_early_leaves_no_answer_to_the_next_one(
    proxied: ProxiedKafka, proxied_topic: str, reader: KafkaClient
) -> None:
    ranges = ranges_of(proxied.bootstrap, [proxied_topic])
    held = proxied.proxy.rule("Fetch", Do.HOLD_ANSWER, client="reader", nth=2)
    pieces = reader.fetch_ranges(ranges, fetch_bytes=FETCH_BYTES).pieces()
    next(pieces)
    held.wait_struck()  # the next request is already sent
    pieces.close()
    assert reader._connections.exclusive._parked == []
    held.release()
    assert read_ranges(reader, ranges) == expected(proxied.bootstrap, ranges)
    assert len(set(links(proxied))) == 2


@pytest.mark.long
def test_a_connection_that_the_broker_closed_meanwhile_is_replaced(
    proxied: ProxiedKafka,
    proxied_topic: str,
    reader: KafkaClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges = ranges_of(proxied.bootstrap, [proxied_topic])
    rows = expected(proxied.bootstrap, ranges)
    assert read_ranges(reader, ranges) == rows
    proxied.broker.restart(1)
    lost: list[object] = []
    monkeypatch.setattr(reader._cluster, "lost", lost.append)
    assert read_ranges(reader, ranges) == rows
    assert lost == []
    assert len(set(links(proxied))) == 2


def test_a_broker_that_never_answers_is_named_at_the_deadline(
    proxied: ProxiedKafka, proxied_topic: str, reader: KafkaClient
) -> None:
    ranges = ranges_of(proxied.bootstrap, [proxied_topic])
    proxied.proxy.rule("Fetch", Do.DROP_REQUEST, client="reader", times=100)
    with raises("partition_leader_unavailable", UnavailableError) as caught:
        read_ranges(reader, ranges, patience_ms=1_900)
    assert f"{proxied_topic}-0 could not be read from offset 0 to " in caught.value.message
    assert "its leader did not answer" in caught.value.message


def test_time_that_the_caller_needs_is_no_wait(
    proxied: ProxiedKafka,
    proxied_topic: str,
    reader: KafkaClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After each piece an hour passes."""
    clock = SimpleNamespace(ahead=0.0, sleep=time.sleep)
    clock.monotonic = lambda: time.monotonic() + clock.ahead
    monkeypatch.setattr("eos.deadline.time", clock)
    ranges = ranges_of(proxied.bootstrap, [proxied_topic])
    count = 0
    for _ in reader.fetch_ranges(ranges, fetch_bytes=FETCH_BYTES).pieces():
        clock.ahead += 3_600
        count += 1
    assert count > len(ranges)


def test_an_open_transaction_is_named_at_the_deadline(
    client: KafkaClient,
    topic: str,
    name: str,
    settled: Callable[[Callable[[], object]], object],
    make_batch: Callable[..., bytes],
    within: Callable[..., object],
) -> None:
    at = TopicPartition(topic, 0)
    opened = settled(lambda: client.init_producer_id(name, 60_000, NO_IDENTITY, within()))
    sent = {at: make_batch(opened.identity, 0, b"a", b"b")}
    assert settled(lambda: client.produce(name, sent, within()))[at].error == 0
    with raises("read_blocked_by_open_transaction", UnavailableError) as caught:
        read_ranges(client, [Range(at, 0, 2)], patience_ms=1_000)
    assert f"{at} could not be read from offset 0 to 2" in caught.value.message
    assert settled(lambda: client.end_txn(name, opened.identity, True, within())).error == 0
    assert [row.value for row in read_ranges(client, [Range(at, 0, 2)])] == [b"a", b"b"]


def test_deleted_records_are_lost_records(
    broker: EmbeddedKafka, client: KafkaClient, topic: str
) -> None:
    kafka_io.fill(broker.bootstrap, topic, range(300))
    (whole, *_) = ranges_of(broker.bootstrap, [topic])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    kafka_io.delete_records(admin, topic, 0, 10)
    with raises("source_lost_records", PromiseBrokenError) as caught:
        read_ranges(client, [whole])
    assert f"{topic}-0 begins at offset 10, but offset 0 is next" in caught.value.message
    assert caught.value.fields["earliest"] == 10
    rest = Range(whole.partition, 10, whole.end)
    assert read_ranges(client, [rest]) == expected(broker.bootstrap, [rest])


def test_a_topic_that_is_gone_is_named(client: KafkaClient, name: str) -> None:
    with raises("kafka_unknown_topic_or_partition") as caught:
        read_ranges(client, [Range(TopicPartition(name, 0), 0, 5)])
    assert f"{name}-0 does not exist" in caught.value.message


# --- logs that are changed while their broker is down -----------------------------------------


@dataclass
class Edited:
    """A broker with a topic for each change of a log, and the offsets before that."""

    broker: EmbeddedKafka
    client: KafkaClient
    ranges: Mapping[str, Range] = field(default_factory=dict)


def cut(found: list[SegmentBatch]) -> None:
    del found[4:]


def flip_a_bit(found: list[SegmentBatch]) -> None:
    found[2][-3] ^= 4


def damage_a_payload(found: list[SegmentBatch]) -> None:
    found[2][70] ^= 0xFF
    found[2].set()  # a correct checksum


def hide_a_batch(found: list[SegmentBatch]) -> None:
    found[2][22] ^= 0x20  # as a marker, which no reader sees


def make_old(found: list[SegmentBatch]) -> None:
    """Format 1, before Kafka 0.11: offset, size, checksum, magic, attributes, time, key, value."""
    for at in (2, 3):
        body = struct.pack(">bbq", 1, 0, kafka_io.NOW_MS) + struct.pack(
            ">i1si3s", 1, b"k", 3, b"old"
        )
        message = struct.pack(">I", google_crc32c.value(body)) + body
        head = struct.pack(">qi", found[at].get("base"), len(message))
        found[at] = SegmentBatch(head + message)


CHANGES = (cut, flip_a_bit, damage_a_payload, hide_a_batch, make_old)


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edited]:
    with EmbeddedKafka(tmp_path_factory.mktemp("edited")) as broker:
        made = Edited(broker, KafkaClient(KafkaSettings((broker.bootstrap,))))
        names = [change.__name__ for change in CHANGES]
        kafka_io.create_topics(broker.bootstrap, 1, *names)
        for name in names:
            writer = kafka_io.producer(broker.bootstrap, {"compression.type": "lz4"})
            for number in range(60):
                writer.produce(name, b"%d" % number * 50, b"k", 0)
                if number % 10 == 9:
                    writer.flush(300)
        made.ranges = {each.partition.topic: each for each in ranges_of(broker.bootstrap, names)}
        broker.stop()
        for change in CHANGES:
            edit_log(broker.nodes[0].data, change.__name__, 0, change)
        broker.start()
        yield made
        made.client.close()


@pytest.mark.long
def test_a_log_that_ends_before_the_planned_offset_has_lost_records(edited: Edited) -> None:
    whole = edited.ranges["cut"]
    with raises("source_lost_records", PromiseBrokenError) as caught:
        read_ranges(edited.client, [whole], patience_ms=1_000)
    assert "cut-0 ends at offset 40, but offset 60 was planned" in caught.value.message
    rest = Range(whole.partition, 50, 60)
    with raises("source_lost_records", PromiseBrokenError):
        read_ranges(edited.client, [rest])
    there = Range(whole.partition, 0, 40)
    assert [row.offset for row in read_ranges(edited.client, [there])] == list(range(40))


@pytest.mark.parametrize("change", ["flip_a_bit", "damage_a_payload", "hide_a_batch"])
def test_a_damaged_record_batch_is_named(edited: Edited, change: str) -> None:
    whole = edited.ranges[change]
    with raises("batch_unreadable", PromiseBrokenError) as caught:
        read_ranges(edited.client, [whole])
    assert f"the record batch in {change}-0 at offset 29" in caught.value.message
    before = Range(whole.partition, 0, 20)
    assert [row.offset for row in read_ranges(edited.client, [before])] == list(range(20))


def test_an_old_format_has_an_error_of_its_own(edited: Edited) -> None:
    whole = edited.ranges["make_old"]
    with raises("record_batch_format_old", AttemptFailedError) as caught:
        read_ranges(edited.client, [whole])
    assert caught.value.fields == {"topic": "make_old", "partition": 0, "offset": 20}
    for start, end in ((0, 20), (40, 60)):
        rows = read_ranges(edited.client, [Range(whole.partition, start, end)])
        assert [row.offset for row in rows] == list(range(start, end))
