"""Offset ranges read from a real broker have the records that librdkafka reads."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from support.kafka.varied_topics import Row, VariedTopics, expected, read_ranges

from eos.deadline import Deadline
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.kafka.range_fetcher import Range
from eos.kafka.records.batch_headers import Batch, batches
from eos.local.embedded_kafka import EmbeddedKafka

FETCH_BYTES = (70_000, 4 << 20)  # many responses, or one


@pytest.fixture(scope="module")
def varied(broker: EmbeddedKafka) -> VariedTopics:
    return VariedTopics.made(broker.bootstrap)


@pytest.fixture(scope="module")
def records(varied: VariedTopics) -> list[Row]:
    return expected(varied.bootstrap, varied.ranges)


@pytest.mark.parametrize("fetch_bytes", FETCH_BYTES)
def test_the_records_are_those_that_another_client_reads(
    client: KafkaClient, varied: VariedTopics, records: list[Row], fetch_bytes: int
) -> None:
    assert read_ranges(client, varied.ranges, fetch_bytes=fetch_bytes) == records
    backwards = varied.ranges[::-1]
    of = {
        each.partition: [row for row in records if row[:2] == each.partition] for each in backwards
    }
    found = read_ranges(client, backwards, fetch_bytes=fetch_bytes, rows_max=100, bytes_max=50_000)
    assert found == [row for each in backwards for row in of[each.partition]]


def test_the_topics_have_what_they_are_for(client: KafkaClient, varied: VariedTopics) -> None:
    """Aborted transactions, an open one, holes, and record batches without records."""
    found: dict[TopicPartition, list[Batch]] = {}
    aborted: dict[TopicPartition, set[tuple[int, int]]] = {}
    for piece in client.fetch_ranges(varied.ranges).pieces():
        of = found.setdefault(piece.progress.partition, [])
        of += [each for each in batches(bytes(piece.records)) if isinstance(each, Batch)]
        aborted.setdefault(piece.progress.partition, set()).update(piece.aborted)
    compacted = found[TopicPartition(f"{varied.name}.compacted", 0)]
    assert any(not each.records for each in compacted)
    assert any(0 < each.records <= each.last_offset - each.offset for each in compacted)
    first = TopicPartition(f"{varied.name}.transactions", 0)
    assert len(aborted[first]) > 2
    assert {"", "ABORT", "COMMIT"} == {each.marker for each in found[first]}
    stable = {each.partition: each.end for each in varied.ranges}
    soon = Deadline.after_ms(120_000)
    written = client.list_offsets([first], "latest", committed=False, deadline=soon)
    assert written[first] > stable[first]
    codecs = {each.codec for each in found[TopicPartition(f"{varied.name}.codecs", 0)]}
    assert codecs == {each.value for each in Codec}


@pytest.mark.parametrize("seed", range(4))
def test_a_range_may_begin_and_end_inside_a_record_batch(
    client: KafkaClient, varied: VariedTopics, records: list[Row], seed: int
) -> None:
    chance = random.Random(seed)
    ranges = []
    for whole in varied.ranges:
        cuts = sorted(chance.randint(whole.start, whole.end) for _ in range(4))
        ranges += [Range(whole.partition, *cuts[:2]), Range(whole.partition, *cuts[2:])]
    chance.shuffle(ranges)
    found = read_ranges(client, ranges, fetch_bytes=chance.choice(FETCH_BYTES))
    assert found == [
        row
        for partition, start, end in ranges
        for row in records
        if row[:2] == partition and start <= row.offset < end
    ]


FORK = """
import gc, os, sys
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.range_fetcher import Range
from eos.kafka.range_reader import read_columns
from eos.kafka.settings import KafkaSettings

settings = KafkaSettings((sys.argv[1],))
ranges = [Range(TopicPartition(sys.argv[2], 0), 0, int(sys.argv[3]))]

def read(client):
    return [batch.to_pylist() for batch in read_columns(client.fetch_ranges(ranges))]

parents = KafkaClient.shared(settings)
expected = read(parents)
child = os.fork()
if not child:
    fresh = read(KafkaClient.shared(settings)) == expected
    try:
        read(parents)
        refused = False
    except RuntimeError:
        refused = True
    parents.close()
    del parents
    gc.collect()
    os._exit(0 if fresh and refused else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
(parked,) = parents._connections.exclusive._parked
assert parked.is_usable
assert read(parents) == expected
assert parents._connections.exclusive._parked == [parked]
print("fine")
"""


def test_a_forked_child_reads_by_a_connection_of_its_own(varied: VariedTopics) -> None:
    """And leaves the parent's connection as it is."""
    last = varied.ranges[-1]
    words = [varied.bootstrap, last.partition.topic, str(last.end)]
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK, *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.stdout, ran.stderr) == ("fine\n", "")
