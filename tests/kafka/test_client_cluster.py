"""What the wire sees of a real cluster: topics, offsets, producers, settings, stored records."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.errors import raises
from support.kafka.kafka_io import NOW_MS

from eos.errors import KafkaRefusedError, UnavailableError
from eos.kafka import cluster
from eos.kafka.api import (
    NO_IDENTITY,
    CommittedOffset,
    DescribedProducer,
    TopicPartition,
    TransactionProfile,
)


@pytest.fixture
def story(client, topic, name, settled, within, make_batch):
    """Partition 0: committed c0 c1, aborted a0 a1, committed c2; then one left open: o0."""
    tp = TopicPartition(topic, 0)
    identity = settled(
        lambda: client.init_producer_id(name, 60_000, NO_IDENTITY, within())
    ).identity
    for values, commit in (((b"c0", b"c1"), True), ((b"a0", b"a1"), False), ((b"c2",), True)):
        batch = {tp: make_batch(identity, 0, *values)}
        assert settled(lambda batch=batch: client.produce(name, batch, within()))[tp].error == 0
        identity = settled(
            lambda i=identity, c=commit: client.end_txn(name, i, c, within())
        ).identity
    batch = {tp: make_batch(identity, 0, b"o0")}
    assert settled(lambda: client.produce(name, batch, within()))[tp].error == 0
    return tp, identity


def read(client, tp, start, end, deadline, **how):
    return [r.value for r in client.read_records(tp, start, end, deadline=deadline, **how)]


def test_reads_committed_records_only_or_all(client, story, within):
    tp, _ = story
    stable = client.list_offsets([tp], "latest", committed=True, deadline=within())[tp]
    end = client.list_offsets([tp], "latest", committed=False, deadline=within())[tp]
    assert (stable, end) == (8, 9)  # three markers lie between
    assert read(client, tp, 0, stable, within(), committed=True) == [b"c0", b"c1", b"c2"]
    everything = [b"c0", b"c1", b"a0", b"a1", b"c2", b"o0"]
    assert read(client, tp, 0, end, within(), committed=False) == everything


def test_reads_exactly_the_asked_offsets(client, story, within):
    tp, identity = story
    assert read(client, tp, 1, 4, within(), committed=False) == [b"c1", b"a0"]
    assert read(client, tp, 4, 8, within(), committed=True) == [b"c2"]
    assert read(client, tp, 0, 8, within(), committed=True, records_max=2) == [b"c0", b"c1"]
    # Up to the record that reaches it: each is `key`, two bytes, and the header `h` of one byte.
    assert read(client, tp, 0, 8, within(), committed=True, bytes_max=7) == [b"c0"]
    assert read(client, tp, 0, 8, within(), committed=True, bytes_max=8) == [b"c0", b"c1"]
    assert read(client, tp, 3, 3, within(), committed=True) == []
    (record,) = client.read_records(tp, 6, 7, committed=True, deadline=within())
    assert (record.offset, record.timestamp_ms, record.key) == (6, NOW_MS, b"key")
    assert record.headers == (("h", b"1"),)
    assert (record.producer_id, record.epoch) == (identity.producer_id, identity.epoch - 1)


def test_committed_read_behind_an_open_transaction_ends_at_the_deadline(client, story, within):
    tp, _ = story
    with raises("read_blocked_by_open_transaction") as caught:
        read(client, tp, 0, 9, within(4000), committed=True)
    assert "from offset 8 to 9" in caught.value.message


def test_reading_before_the_log_starts_is_refused(client, story, within):
    tp, _ = story
    with pytest.raises(KafkaRefusedError, match="OFFSET_OUT_OF_RANGE"):
        read(client, tp, 500, 501, within(), committed=False)


def test_describes_the_producers_of_a_partition(client, story, within):
    tp, identity = story
    other = TopicPartition(tp.topic, 1)
    states = client.describe_producers([tp, other], within())
    (found,) = states[tp]
    assert replace(found, last_ms=-1) == DescribedProducer(identity, 0, 8, coordinator_epoch=0)
    assert found.last_ms > 0
    assert states[other] == ()


def test_lists_offsets_by_time(client, story, within):
    tp, _ = story
    at = lambda when: client.list_offsets([tp], when, committed=False, deadline=within())[tp]  # noqa: E731
    assert (at("earliest"), at(NOW_MS + 1)) == (0, 1)
    # Above every record's own time, yet the markers carry the broker's clock: no record, -1.
    assert at(10**14) == -1


def test_pending_group_offsets_are_waited_for(client, topic, name, settled, within):
    tp, group = TopicPartition(topic, 0), f"{name}-group"
    identity = settled(
        lambda: client.init_producer_id(name, 60_000, NO_IDENTITY, within())
    ).identity
    offsets = {tp: CommittedOffset(5, "m")}
    answer = settled(lambda: client.commit_offsets(name, identity, group, offsets, within()))
    assert answer[tp].error == 0
    with raises("group_offsets_pending"):
        client.committed_offsets(group, within(5000), [tp])
    assert client.committed_offsets(group, within()) == {}  # the broker leaves it out
    assert settled(lambda: client.end_txn(name, identity, True, within())).error == 0
    assert client.committed_offsets(group, within(), [tp]) == offsets
    assert client.committed_offsets(group, within()) == offsets
    assert client.committed_offsets(f"{name}-nobody", within()) == {}


def test_describes_topics_by_name_and_by_pattern(client, topic, within):
    found = client.topics([topic, f"{topic}-none"], within())
    assert (found[topic].partitions, found[topic].error) == (3, 0)
    assert len(found[topic].topic_id) == 22
    assert found[f"{topic}-none"].error == 3
    assert set(client.topics(re.compile(re.escape(topic[:-1]) + "."), within())) == {topic}
    assert client.topics(re.compile(topic[:-1]), within()) == {}


def test_a_pattern_finds_no_topics_of_the_brokers_own(client, name, within):
    client.committed_offsets(name, within())  # makes sure that __consumer_offsets is there
    assert client.topics(["__consumer_offsets"], within())["__consumer_offsets"].error == 0
    assert client.topics(re.compile("__consumer_offsets"), within()) == {}


def test_leaders_of_what_does_not_exist_are_refused_by_name(client, topic, within, monkeypatch):
    monkeypatch.setattr(cluster, "_UNKNOWN_TOPIC_MS", 100)
    assert set(client.leaders([TopicPartition(topic, 2)], within())) == {TopicPartition(topic, 2)}
    with raises("kafka_unknown_topic_or_partition") as missing:
        client.leaders([TopicPartition(topic, 3)], within())
    assert f"{topic}-3" in missing.value.message
    with pytest.raises(KafkaRefusedError, match="INVALID_TOPIC_EXCEPTION"):
        client.leaders([TopicPartition("no/topic", 0)], within())


def test_creates_a_topic_once_and_says_what_the_broker_minds(client, name, within):
    client.create_topic(name, 2, 1, {"retention.ms": "-1"}, within())
    client.create_topic(name, 2, 1, {"retention.ms": "-2"}, within())
    assert client.topic_config(name, "retention.ms", within()) == "-1"
    with pytest.raises(KafkaRefusedError, match=r"INVALID_CONFIG.*nonsense"):
        client.create_topic(f"{name}-b", 1, 1, {"nonsense": "1"}, within())
    # A restart may help, since the other brokers may be down.
    with raises("replication_factor_unreachable", UnavailableError):
        client.create_topic(f"{name}-b", 1, 9, {}, within())


def test_reads_settings_of_topics_and_brokers(client, topic, within):
    assert client.broker_config("transaction.max.timeout.ms", within()) == "900000"
    with raises("kafka_setting_missing"):
        client.topic_config(topic, "nonsense", within())
    with pytest.raises(KafkaRefusedError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.topic_config(f"{topic}-none", "retention.ms", within())


def test_the_embedded_broker_is_supported(client, within):
    assert client.transaction_version(within()) == 2
    assert client.agree_on_profile(within()) is TransactionProfile.TV2
