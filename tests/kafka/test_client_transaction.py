"""A transaction by hand, request by request, on a real broker: both profiles."""

from __future__ import annotations

import pytest

from eos.kafka.api import (
    NO_IDENTITY,
    Answer,
    CommittedOffset,
    Identity,
    TopicPartition,
    TransactionProfile,
)


@pytest.fixture
def begin(settled, within):
    def begin(client, name, identity=NO_IDENTITY):
        answer = settled(lambda: client.init_producer_id(name, 60_000, identity, within()))
        assert answer.error == 0, answer
        return answer.identity

    return begin


@pytest.fixture
def values(client, within):
    def values(tp):
        """What a read_committed reader sees."""
        end = client.list_offsets([tp], "latest", committed=False, deadline=within())[tp]
        read = client.read_records(tp, 0, end, committed=True, deadline=within())
        return [record.value for record in read]

    return values


def test_tv2_commits_what_another_connection_produced_and_returns_the_next_epoch(
    client, clients, topic, name, begin, settled, within, make_batch, values
):
    source, group = TopicPartition(topic, 2), f"{name}-group"
    targets = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    identity = begin(client, name)
    executor = clients()
    produced = settled(
        lambda: executor.produce(
            name, {tp: make_batch(identity, 0, b"a", b"b") for tp in targets}, within()
        )
    )
    assert {tp: (a.error, a.offset) for tp, a in produced.items()} == dict.fromkeys(targets, (0, 0))
    offsets = {source: CommittedOffset(42, "why")}
    committed = settled(lambda: client.commit_offsets(name, identity, group, offsets, within()))
    assert committed == {source: Answer(0)}
    ended = settled(lambda: client.end_txn(name, identity, True, within()))
    assert ended.error == 0
    assert ended.identity == Identity(identity.producer_id, identity.epoch + 1)
    assert [values(tp) for tp in targets] == [[b"a", b"b"], [b"a", b"b"]]
    # By name: asked for all of them, the broker leaves out what still waits for its marker.
    assert client.committed_offsets(group, within(), [source]) == offsets


def test_tv2_commit_repeated_after_a_lost_answer_gives_the_same_answer(
    client, topic, name, begin, settled, within, make_batch
):
    identity = begin(client, name)
    batch = {TopicPartition(topic, 0): make_batch(identity, 0, b"a")}
    settled(lambda: client.produce(name, batch, within()))
    first = settled(lambda: client.end_txn(name, identity, True, within()))
    again = settled(lambda: client.end_txn(name, identity, True, within()))
    assert (first.error, again) == (0, first)


def test_tv2_empty_transaction_aborts_with_a_new_epoch_and_does_not_commit(
    client, name, begin, settled, within
):
    identity = begin(client, name)
    assert settled(lambda: client.end_txn(name, identity, True, within())).error == 48
    aborted = settled(lambda: client.end_txn(name, identity, False, within()))
    assert (aborted.error, aborted.identity.epoch) == (0, identity.epoch + 1)


def test_tv2_late_produce_of_the_last_attempt_is_refused(
    client, clients, topic, name, begin, settled, within, make_batch, values
):
    identity, tp = begin(client, name), TopicPartition(topic, 0)
    settled(lambda: client.produce(name, {tp: make_batch(identity, 0, b"a")}, within()))
    assert settled(lambda: client.end_txn(name, identity, True, within())).error == 0
    assert values(tp) == [b"a"]  # until the marker is there the broker would take it in
    straggler = clients()
    late = settled(
        lambda: straggler.produce(name, {tp: make_batch(identity, 1, b"late")}, within())
    )
    assert late[tp].error == 47
    assert values(tp) == [b"a"]


def test_repeated_record_batch_is_acknowledged_once_more_and_stored_once(
    client, topic, name, begin, settled, within, make_batch, values
):
    identity, tp = begin(client, name), TopicPartition(topic, 0)
    batch = {tp: make_batch(identity, 0, b"a", b"b")}
    first = settled(lambda: client.produce(name, batch, within()))
    again = settled(lambda: client.produce(name, batch, within()))
    assert first == again
    settled(lambda: client.end_txn(name, identity, True, within()))
    assert values(tp) == [b"a", b"b"]


def test_blank_init_takes_over_and_init_with_identity_fences_the_older_owner(
    client, clients, name, begin, settled, within
):
    older = begin(client, name)
    newer = begin(clients(), name)
    assert newer == Identity(older.producer_id, older.epoch + 1)
    refused = settled(lambda: client.init_producer_id(name, 60_000, older, within()))
    assert refused.error == 90
    bumped = begin(clients(), name, newer)
    assert bumped.epoch == newer.epoch + 1
    # The answer was lost, the request is repeated: the same identity, not one more.
    assert begin(clients(), name, newer) == bumped


def test_tv1_commits_and_keeps_its_identity_until_the_next_init(
    clients, topic, name, begin, settled, within, make_batch, values
):
    client, tp, group = clients(TransactionProfile.TV1), TopicPartition(topic, 0), f"{name}-group"
    identity = begin(client, name)
    added = settled(lambda: client.add_partitions(name, identity, frozenset({tp}), within()))
    assert added == {tp: Answer(0)}
    produced = settled(lambda: client.produce(name, {tp: make_batch(identity, 0, b"a")}, within()))
    assert produced[tp].error == 0
    assert settled(lambda: client.add_offsets(name, identity, group, within())) == Answer(0)
    offsets = {tp: CommittedOffset(7)}
    assert settled(lambda: client.commit_offsets(name, identity, group, offsets, within())) == {
        tp: Answer(0)
    }
    ended = settled(lambda: client.end_txn(name, identity, True, within()))
    assert (ended.error, ended.identity) == (0, identity)
    assert values(tp) == [b"a"]  # until the marker is there the broker would take it in
    late = settled(
        lambda: clients(TransactionProfile.TV1).produce(
            name, {tp: make_batch(identity, 1, b"late")}, within()
        )
    )
    assert late[tp].error == 48
    assert begin(client, name, identity).epoch == identity.epoch + 1
    assert values(tp) == [b"a"]
    assert client.committed_offsets(group, within()) == offsets


def test_tv1_empty_transaction_neither_commits_nor_aborts(clients, name, begin, settled, within):
    client = clients(TransactionProfile.TV1)
    identity = begin(client, name)
    assert settled(lambda: client.end_txn(name, identity, True, within())).error == 48
    assert settled(lambda: client.end_txn(name, identity, False, within())).error == 48


def test_tv1_produce_to_a_partition_that_was_not_added_is_refused(
    clients, topic, name, begin, settled, within, make_batch
):
    client, tp = clients(TransactionProfile.TV1), TopicPartition(topic, 0)
    identity = begin(client, name)
    answer = settled(lambda: client.produce(name, {tp: make_batch(identity, 0, b"a")}, within()))
    assert answer[tp].error == 48


def test_pipelined_requests_to_one_leader_arrive_in_order(
    client, topic, name, begin, settled, within, make_batch, values
):
    identity, tp = begin(client, name), TopicPartition(topic, 0)
    settled(lambda: client.produce(name, {tp: make_batch(identity, 0, b"0")}, within()))
    leader = client.leaders([tp], within())[tp]
    sent = []
    for sequence in range(1, 5):
        batch = {tp: make_batch(identity, sequence, b"%d" % sequence, padding=200_000)}
        after = sent[-1] if sent else None
        sent.append(client.send_produce(leader, name, batch, 20_000, after))
    assert [one.wait(within())[tp].error for one in sent] == [0, 0, 0, 0]
    assert all(one.done for one in sent)
    settled(lambda: client.end_txn(name, identity, True, within()))
    assert [value[:1] for value in values(tp)] == [b"0", b"1", b"2", b"3", b"4"]
    assert sent[0].wait(within()) == sent[0].wait(within())


def test_large_views_of_memory_are_sent_as_they_are(
    client, topic, name, begin, settled, within, make_batch, values
):
    identity, tp = begin(client, name), TopicPartition(topic, 0)
    blob = make_batch(identity, 0, b"a", padding=900_000)
    for view in (memoryview(blob), bytearray(blob)):
        answer = settled(lambda view=view: client.produce(name, {tp: view}, within()))
        assert (answer[tp].error, answer[tp].offset) == (0, 0)
    settled(lambda: client.end_txn(name, identity, True, within()))
    assert [len(value) for value in values(tp)] == [900_001]
