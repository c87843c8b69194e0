"""Fetch by hand: kafka-python understands the request, and damaged responses have one error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from support.errors import examples

from eos.kafka import fetch_wire
from eos.kafka.api import TopicPartition
from eos.kafka.fetch_wire import BrokenResponseError, FetchedPartition, Position

INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 300))
TOPIC = FetchResponse.FetchableTopicResponse
PARTITION = TOPIC.PartitionData
ABORTED = PARTITION.AbortedTransaction


@st.composite
def partitions(draw: Any) -> FetchedPartition:
    return FetchedPartition(
        draw(PARTITIONS),
        draw(st.integers(-1, 120)),
        draw(INT64),
        draw(INT64),
        tuple(draw(st.lists(st.tuples(INT64, INT64), max_size=200))),
        memoryview(draw(st.binary(max_size=300))),
    )


def encoded(correlation: int, throttle_ms: int, found: list[FetchedPartition]) -> bytes:
    """By kafka-python, and with a tagged field in each partition: the leader that it hints at."""
    topics = [
        TOPIC(
            topic=each.partition.topic,
            partitions=[
                PARTITION(
                    partition_index=each.partition.partition,
                    error_code=each.error,
                    high_watermark=each.high_watermark,
                    last_stable_offset=each.last_stable_offset,
                    log_start_offset=5,
                    aborted_transactions=[
                        ABORTED(producer_id=pid, first_offset=first) for pid, first in each.aborted
                    ]
                    or None,
                    preferred_read_replica=-1,
                    records=bytes(each.records) or None,
                    current_leader=PARTITION.LeaderIdAndEpoch(leader_id=3, leader_epoch=4),
                )
            ],
        )
        for each in found
    ]
    response = FetchResponse(
        version=12, throttle_time_ms=throttle_ms, error_code=0, session_id=0, responses=topics
    )
    response.with_header(correlation_id=correlation)
    return response.encode(header=True)


@settings(max_examples=examples(200))
@given(st.lists(partitions(), max_size=5, unique_by=lambda each: each.partition))
def test_a_response_is_read_as_it_was_written(found: list[FetchedPartition]) -> None:
    read = fetch_wire.fetch_response(memoryview(encoded(77, 9, found)), 77)
    assert (read.throttle_ms, read.error) == (9, 0)
    assert list(read.partitions.values()) == found
    assert list(read.partitions) == [each.partition for each in found]


@settings(max_examples=examples(500))
@given(
    st.lists(partitions(), min_size=1, max_size=3),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=9),
    st.booleans(),
)
def test_a_damaged_response_has_one_error_or_stays_within_its_bytes(
    found: list[FetchedPartition], place: float, noise: bytes, is_cut: bool
) -> None:
    whole = encoded(77, 9, found)
    at = int(place * len(whole))
    blob = whole[:at] if is_cut else whole[:at] + noise + whole[at + len(noise) :]
    try:
        read = fetch_wire.fetch_response(memoryview(blob), 77)
    except BrokenResponseError:
        return
    assert sum(len(each.records) for each in read.partitions.values()) <= len(blob)


@pytest.mark.parametrize("size", [0, 3, 4])
def test_a_response_without_fields_is_broken(size: int) -> None:
    with pytest.raises(BrokenResponseError):
        fetch_wire.fetch_response(memoryview(b"\0\0\0\x4d"[:size]), 77)


def test_the_response_of_another_request_is_broken() -> None:
    with pytest.raises(BrokenResponseError, match="correlation id 76, expected 77"):
        fetch_wire.fetch_response(memoryview(encoded(76, 0, [])), 77)


@settings(max_examples=examples(200))
@given(
    st.lists(st.builds(Position, PARTITIONS, st.integers(0, 2**63 - 1)), max_size=200),
    st.text(max_size=20),
)
def test_kafka_python_reads_the_request(positions: list[Position], client: str) -> None:
    frame = fetch_wire.fetch_request(5, client, positions, 1_000, 100)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = frame[4:12]
    assert header[:8] == b"\0\1\0\x0c\0\0\0\5"
    name = client.encode()
    body = frame[4 + 8 + 2 + len(name) + 1 :]
    assert frame[12:14] + frame[14 : 14 + len(name)] == len(name).to_bytes(2, "big") + name
    read = FetchRequest.decode(body, version=12)
    assert (read.replica_id, read.max_wait_ms, read.min_bytes) == (-1, 100, 1)
    assert (read.max_bytes, read.isolation_level) == (1_000, 1)
    assert (read.session_id, read.session_epoch, read.rack_id) == (0, -1, "")
    assert read.forgotten_topics_data == []
    found = [
        (Position(TopicPartition(topic.topic, one.partition), one.fetch_offset), one)
        for topic in read.topics
        for one in topic.partitions
    ]
    assert [position for position, _ in found] == positions
    assert all(one.partition_max_bytes == 1_000 for _, one in found)
    assert all(one.current_leader_epoch == -1 for _, one in found)
