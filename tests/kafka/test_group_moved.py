"""Others move the pipeline's group at the worst moment: the commit stands, the ledger is the truth.

What they did is told, and put right by the next commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import NUMBERS_TOPIC, ProxiedKafka, run_copy
from support.doubles import At
from support.kafka import kafka_io

from eos.errors import PromiseBrokenError
from eos.observe import events

RECORDS = 17  # of each partition: two micro-batches
BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def small(job: Callable[..., Job]) -> Job:
    return job(records=RECORDS)


@pytest.fixture
def admin(proxied: ProxiedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": proxied.bootstrap})


def group_now(proxied: ProxiedKafka, job: Job) -> dict[int, int]:
    return kafka_io.group_offsets(proxied.bootstrap, job.name, NUMBERS_TOPIC)


def told(copy: Copy) -> list[str]:
    return [event.message for event in copy.told.of(events.Warned)]


def delete(admin: AdminClient, group: str) -> None:
    admin.delete_consumer_groups([group])[group].result(180)


def reset(admin: AdminClient, group: str, offset: int) -> None:
    to = ConsumerGroupTopicPartitions(group, [TopicPartition(NUMBERS_TOPIC, 0, offset)])
    admin.alter_consumer_group_offsets([to])[group].result(180)


@contextmanager
def a_member(bootstrap: str, group: str, protocol: str) -> Iterator[Consumer]:
    """Somebody else's consumer, with our group's name, once it has its partitions."""
    settings = {
        "group.protocol": protocol,
        "client.id": "stranger",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    with kafka_io.consuming(bootstrap, group, NUMBERS_TOPIC, **settings) as consumer:
        yield consumer


OPEN = pytest.mark.parametrize("point", ["offsets:before", "offsets:after", "end_txn_sent:before"])


@OPEN
def test_a_group_that_is_deleted_while_the_transaction_is_open(proxied, small, admin, point):
    """With its offsets pending, too: then the commit brings them to nobody."""
    with Copy(small, At(point, lambda: delete(admin, small.name))) as copy:
        copy.start()
        copy.step()
        is_pending = point != "offsets:before"
        assert group_now(proxied, small) == ({} if is_pending else {0: RECORDS, 1: RECORDS})
        copy.drain()
        assert [message.count("is at nothing") for message in told(copy)] == [2] * is_pending
        copy.stop()
    proxied.check(small)


@OPEN
@pytest.mark.parametrize("offset", [3, RECORDS + 3], ids=["back", "on"])
def test_a_group_that_is_reset_while_the_transaction_is_open(proxied, small, admin, point, offset):
    """A plain commit wins over one that is pending."""
    with Copy(small, At(point, lambda: reset(admin, small.name, offset))) as copy:
        copy.start()
        copy.step()
        is_pending = point != "offsets:before"
        moved = offset if is_pending else RECORDS
        assert group_now(proxied, small) == {0: moved, 1: RECORDS}
        copy.drain()
        assert [f"{NUMBERS_TOPIC}-0 is at {offset}" in message for message in told(copy)] == (
            [True] * is_pending
        )
        copy.stop()
    proxied.check(small)


def test_a_group_that_was_moved_back_does_not_move_a_start(proxied, small, admin):
    assert run_copy(small, micro_batches=1).error is None
    reset(admin, small.name, 3)
    assert run_copy(small).committed == [1]
    proxied.check(small)


def test_a_group_that_was_moved_on_stops_a_start_which_names_it(proxied, small, admin):
    assert run_copy(small, micro_batches=1).error is None
    reset(admin, small.name, RECORDS + 3)
    stopped = run_copy(small).error
    assert isinstance(stopped, PromiseBrokenError)
    assert f"{NUMBERS_TOPIC}-0 is at {RECORDS + 3}, the ledger at {RECORDS}" in stopped.message
    assert f"eos recover {small.name}" in stopped.hint
    reset(admin, small.name, RECORDS)
    assert run_copy(small).committed == [1]
    proxied.check(small)


@BOTH
def test_a_member_that_joins_under_a_run_takes_nothing_from_it(proxied, small, protocol):
    """The broker takes a transaction's offsets beside those of live members, of both protocols, so
    theirs may overwrite ours: told, and put right."""
    with Copy(small) as copy:
        copy.start()
        copy.step()
        with a_member(proxied.bootstrap, small.name, protocol) as member:
            member.commit(offsets=[TopicPartition(NUMBERS_TOPIC, 0, 3)], asynchronous=False)
            copy.drain()
            assert copy.committed == [0, 1]
            assert [f"{NUMBERS_TOPIC}-0 is at 3" in message for message in told(copy)] == [True]
        copy.stop()
    proxied.check(small)


@BOTH
def test_a_member_stops_a_start_which_names_the_group_and_the_way_out(proxied, small, protocol):
    assert run_copy(small, micro_batches=1).error is None
    with a_member(proxied.bootstrap, small.name, protocol):
        stopped = run_copy(small).error
        assert isinstance(stopped, PromiseBrokenError)  # exit 4
        assert repr(small.name) in stopped.message
        assert f"--describe --members --group {small.name}" in stopped.hint
    assert run_copy(small).committed == [1]
    proxied.check(small)


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy):
    behind_proxy.check_logs("group-moved-*.*")
