"""Offset ranges read from three brokers while leaders move, die and fall silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.kafka import kafka_io
from support.kafka.three_brokers import NODES, ThreeBrokers, three_nodes
from support.kafka.varied_topics import Row, expected, ranges_of, read_ranges, rows_of

from eos.deadline import Deadline
from eos.kafka.client import KafkaClient
from eos.kafka.range_fetcher import Range
from eos.kafka.range_reader import read_columns
from eos.kafka.settings import KafkaSettings

pytestmark = pytest.mark.long

TOPIC, PARTITIONS, RECORDS = "led", 7, 7_000
FETCH_BYTES = 70_000


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with three_nodes(tmp_path_factory.mktemp("three")) as made:
        bootstrap = made.kafka.bootstrap
        made.client.create_topic(TOPIC, PARTITIONS, len(NODES), {}, Deadline.after_ms(300_000))
        writer = kafka_io.producer(bootstrap, {"batch.size": 20_000, "acks": "all"})
        for number in range(RECORDS):
            writer.produce(TOPIC, b"%d." % number * 60, b"%d" % number, number % PARTITIONS)
        assert writer.flush(300) == 0
        yield made


@pytest.fixture
def three(nodes: ThreeBrokers) -> Iterator[ThreeBrokers]:
    yield nodes
    nodes.mend()


@pytest.fixture(scope="module")
def ranges(nodes: ThreeBrokers) -> list[Range]:
    return ranges_of(nodes.kafka.bootstrap, [TOPIC])


@pytest.fixture(scope="module")
def records(nodes: ThreeBrokers, ranges: list[Range]) -> list[Row]:
    return expected(nodes.kafka.bootstrap, ranges)


@pytest.fixture
def reader(three: ThreeBrokers) -> Iterator[KafkaClient]:
    made = KafkaClient(
        KafkaSettings(tuple(three.bootstrap.split(",")), "reader", request_timeout_ms=1_000)
    )
    yield made
    made.close()


def leader_of(three: ThreeBrokers, each: Range) -> int:
    return three.leaders(TOPIC)[each.partition]


def test_ranges_of_all_leaders_are_read_in_the_given_order(
    three: ThreeBrokers, reader: KafkaClient, ranges: list[Range], records: list[Row]
) -> None:
    assert len(records) == RECORDS
    assert set(three.leaders(TOPIC).values()) == set(NODES)
    for fetch_bytes in (FETCH_BYTES, 4 << 20):
        assert read_ranges(reader, ranges, fetch_bytes=fetch_bytes) == records


def test_small_ranges_of_all_leaders_take_one_request_each(
    three: ThreeBrokers, reader: KafkaClient, ranges: list[Range], records: list[Row]
) -> None:
    few = [Range(each.partition, each.start, each.start + 20) for each in ranges]
    rows = [row for row in records if row.offset < 20]
    assert read_ranges(reader, few) == rows
    asked = [each.port for each in three.proxy.seen if (each.api, each.client) == FETCHED]
    assert sorted(asked) == sorted(set(asked))
    assert len(asked) == len(NODES)


FETCHED = ("Fetch", "reader")


@pytest.mark.parametrize("fault", ["kill", "pause", "move"])
def test_leaders_that_are_replaced_meanwhile(
    three: ThreeBrokers,
    reader: KafkaClient,
    ranges: list[Range],
    records: list[Row],
    fault: str,
) -> None:
    """The leader of the first range, in the middle of it; others follow later."""
    read = read_columns(
        reader.fetch_ranges(ranges, fetch_bytes=FETCH_BYTES), rows_max=100, bytes_max=1 << 20
    )
    rows = rows_of([next(read)])
    assert rows[-1].offset < ranges[0].end - 1
    victim = leader_of(three, ranges[0])
    if fault == "move":
        three.move_leaders(TOPIC)
    else:
        {"kill": three.kill, "pause": three.pause}[fault](victim)
    rows += rows_of(read)
    assert rows == records
    assert leader_of(three, ranges[0]) != victim
