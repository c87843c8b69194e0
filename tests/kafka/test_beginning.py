"""Where a pipeline begins: `start:` in all its forms, on offsets that others committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from support.errors import raises
from support.kafka import kafka_io
from support.kafka.kafka_io import consuming

from eos.config.source import StartAt
from eos.deadline import Backoff
from eos.errors import PromiseBrokenError, UnavailableError, UsageError
from eos.kafka.api import NO_IDENTITY, TopicPartition
from eos.startup.start_offsets import is_at_own_group, resolve

COUNTS = (4, 0, 7)  # records in each partition
FIRST_MS = int(time.time()) * 1000 - 3_600_000  # old ones would be deleted by retention


@pytest.fixture
def partitions(topic: str, broker) -> list[TopicPartition]:
    """Partition p has COUNTS[p] records, one a second from FIRST_MS on."""
    producer = kafka_io.producer(broker.bootstrap)
    for partition, count in enumerate(COUNTS):
        for number in range(count):
            at_ms = FIRST_MS + 1000 * number
            producer.produce(topic, b"v", partition=partition, timestamp=at_ms)
    assert producer.flush(300) == 0
    return [TopicPartition(topic, number) for number in range(len(COUNTS))]


@pytest.fixture
def at(client, partitions, name, within) -> Callable[..., list[int]]:
    """The offsets that a start means, in the order of the partitions."""

    def ask(start, of=partitions) -> list[int]:
        found = resolve(
            start, of, pipeline="copy", group=f"eos.{name}", client=client, deadline=within()
        )
        assert found.keys() == set(of)
        return [found[tp] for tp in sorted(of)]

    return ask


@pytest.fixture
def commit(broker, partitions) -> Callable[[str, Mapping[int, int]], None]:
    """As any consumer of librdkafka does, which is no member of the group then."""

    def commit(group: str, offsets: Mapping[int, int]) -> None:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        topic = partitions[0].topic
        positions = [Position(topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=positions, asynchronous=False)
        consumer.close()

    return commit


def since(timestamp_ms: int) -> StartAt:
    return StartAt.model_construct(timestamp_ms=timestamp_ms)


def test_earliest_and_latest(at):
    assert at("earliest") == [0, 0, 0]
    assert at("latest") == [4, 0, 7]


def test_a_time_is_the_first_record_that_late_and_the_end_where_there_is_none(at):
    assert at(since(FIRST_MS)) == [0, 0, 0]
    assert at(since(FIRST_MS + 2001)) == [3, 0, 3]
    assert at(since(FIRST_MS + 5000)) == [4, 0, 5]
    assert at(since(0)) == [0, 0, 0]
    assert at(since(2**52)) == [4, 0, 7]


def test_a_record_that_comes_between_the_questions_is_not_skipped(
    at, client, partitions, broker, monkeypatch
):
    """The end that stands in for a time without a record must not lie behind that record."""
    ask, late = client.list_offsets, FIRST_MS + 10_000

    def asked(tps, when, **how):
        found = ask(tps, when, **how)
        producer = kafka_io.producer(broker.bootstrap)
        producer.produce(partitions[1].topic, b"late", partition=1, timestamp=late)
        assert producer.flush(300) == 0
        return found

    monkeypatch.setattr(client, "list_offsets", asked)
    assert at(since(late))[1] == 0


def test_a_group_is_gone_on_with_where_it_is(at, commit, name):
    commit(f"eos.{name}", {0: 4, 1: 0, 2: 0})
    commit(f"theirs-{name}", {0: 1, 1: 0, 2: 7})
    assert at("group") == [4, 0, 0]
    assert at(StartAt(group=f"eos.{name}")) == [4, 0, 0]
    assert at(StartAt(group=f"theirs-{name}")) == [1, 0, 7]


def test_a_partition_that_the_group_never_committed_stops(at, commit, name, topic):
    theirs = f"theirs-{name}"
    commit(theirs, {1: 0})
    with raises("start_group_without_offsets", UsageError) as caught:
        at(StartAt(group=theirs))
    assert caught.value.fields["group"] == theirs
    assert caught.value.fields["missing"] == f"{topic}-0, {topic}-2"
    with raises("start_group_without_offsets", UsageError) as own:
        at("group")
    assert own.value.fields["group"] == f"eos.{name}"
    assert "the pipeline's own group" in own.value.hint
    assert "`start: {offsets: ...}`" in own.value.hint


def test_records_that_the_group_has_not_read_and_that_are_gone_stop(
    at, commit, name, topic, client, within
):
    commit(f"theirs-{name}", {0: 1, 1: 0, 2: 7})
    client.delete_records({TopicPartition(topic, 0): 3}, within())
    with raises("start_gone", PromiseBrokenError) as caught:
        at(StartAt(group=f"theirs-{name}"))
    assert f"offset 1 of {topic}-0, which begins at 3: 2 offsets" in caught.value.message
    with raises("start_gone", PromiseBrokenError) as caught:
        at(StartAt(offsets={topic: {0: 2, 1: 0, 2: 7}}))
    assert (caught.value.fields["offset"], caught.value.fields["earliest"]) == (2, 3)
    assert at(StartAt(offsets={topic: {0: 3, 1: 0, 2: 7}})) == [3, 0, 7]


def test_offsets_beyond_the_end_stop(at, commit, name, topic):
    commit(f"theirs-{name}", {0: 4, 1: 0, 2: 8})
    with raises("start_beyond", PromiseBrokenError) as caught:
        at(StartAt(group=f"theirs-{name}"))
    assert f"offset 8 of {topic}-2, which ends at 7: 1" in caught.value.message
    with raises("start_offset_out_of_range", UsageError) as caught:
        at(StartAt(offsets={topic: {0: 5, 1: 0, 2: 7}}))
    assert f"offset 5 of {topic}-0, which ends at 4" in caught.value.message


def test_offsets_that_are_named_are_taken_if_every_partition_is(at, topic):
    assert at(StartAt(offsets={topic: {0: 4, 1: 0, 2: 3}})) == [4, 0, 3]
    with raises("start_partition_missing", UsageError) as missing:
        at(StartAt(offsets={topic: {1: 0}}))
    assert missing.value.fields["missing"] == f"{topic}-0, {topic}-2"
    assert f"{topic}-0 has 0 to 4, {topic}-2 has 0 to 7" in missing.value.hint
    named = {topic: {0: 0, 1: 0, 2: 0, 3: 0}, f"{topic}.b": {0: 0}}
    with raises("start_partition_unknown", UsageError) as unknown:
        at(StartAt(offsets=named))
    assert unknown.value.fields["unknown"] == f"{topic}-3, {topic}.b-0"
    assert f"{topic} has 3, {topic}.b has 0" in unknown.value.hint


def test_an_offset_behind_an_open_transaction_is_waited_for(
    at, client, name, topic, settled, make_batch, within
):
    identity = settled(
        lambda: client.init_producer_id(name, 60_000, NO_IDENTITY, within())
    ).identity
    batch = {TopicPartition(topic, 0): make_batch(identity, 0, b"open")}
    assert (
        settled(lambda: client.produce(name, batch, within()))[TopicPartition(topic, 0)].error == 0
    )
    start = StartAt(offsets={topic: {0: 5, 1: 0, 2: 0}})
    with raises("start_transaction_open", UnavailableError) as caught:
        at(start)
    assert "can be read up to 4: a transaction is open" in caught.value.message
    assert at("latest") == [4, 0, 7]
    assert settled(lambda: client.end_txn(name, identity, True, within())).error == 0
    deadline, backoff = within(), Backoff()
    while (
        client.list_offsets(
            [TopicPartition(topic, 0)], "latest", committed=True, deadline=deadline
        )[TopicPartition(topic, 0)]
        < 6
    ):  # its record and its marker
        backoff.sleep(deadline)
    assert at(start) == [5, 0, 0]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_whose_members_consume_is_refused(
    at, commit, name, topic, broker, client, within, protocol
):
    theirs = f"{protocol}-{name}"
    with consuming(broker.bootstrap, theirs, topic, **{"group.protocol": protocol}):
        with raises("group_in_use", PromiseBrokenError) as caught:
            at(StartAt(group=theirs))
        assert (caught.value.fields["group"], caught.value.fields["state"]) == (theirs, "Stable")
    deadline, backoff = within(), Backoff()
    while client.group_state(theirs, deadline) != "Empty":
        assert not deadline.has_passed
        backoff.sleep(deadline)
    commit(theirs, {0: 1, 1: 0, 2: 2})
    assert at(StartAt(group=theirs)) == [1, 0, 2]
    assert client.group_state(f"{theirs}-none", deadline) == ""


def test_the_pipelines_own_group_is_told_from_another():
    assert is_at_own_group("group", "eos.copy")
    assert is_at_own_group(StartAt(group="eos.copy"), "eos.copy")
    assert not is_at_own_group(StartAt(group="theirs"), "eos.copy")
    assert not is_at_own_group("latest", "eos.copy")
    assert not is_at_own_group(StartAt(offsets={"a": {0: 0}}), "eos.copy")
