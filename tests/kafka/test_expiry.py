"""What the broker forgets: the transactional id, the producer id, the group's offsets.

The ledger remembers, so the next micro-batch or the next start goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kafka.protocol.consumer.group import OffsetCommitRequest
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import NUMBERS_TOPIC, PARTITIONS, ProxiedKafka, proxied_kafka, run_copy
from support.kafka import kafka_io
from support.kafka.brokers import transaction_state, wait_for_state
from support.waiting import wait_until

from eos.audit.projection import Projection
from eos.audit.table import TransactionsTable
from eos.deadline import Deadline
from eos.errors import AttemptFailedError, FencedError
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.cluster import Kind
from eos.observe import events

pytestmark = pytest.mark.long

SHORT_CLOCKS = {
    "transactional.id.expiration.ms": "10000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "200",
    "offsets.retention.check.interval.ms": "200",
}
RECORDS = 17  # of each partition: two micro-batches
WAIT_S_MAX = 300


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedKafka]:
    """In the place of the session's broker: one that forgets soon."""
    with proxied_kafka(tmp_path_factory.mktemp("forgetful"), SHORT_CLOCKS) as made:
        yield made


@pytest.fixture
def small(job: Callable[..., Job]) -> Job:
    return job(records=RECORDS)


@pytest.fixture
def looking(small: Job) -> Iterator[KafkaClient]:
    made = small.client(".looks")
    yield made
    made.close()


def soon() -> Deadline:
    return Deadline.after_ms(WAIT_S_MAX * 1000)


def expire_offsets(client: KafkaClient, group: str, offsets: Mapping[int, int]) -> None:
    """The same offsets once more, to be kept for half a second, and waits until they are gone."""
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    request = OffsetCommitRequest(
        version=4,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=500,
        topics=[
            topic(
                name=NUMBERS_TOPIC,
                partitions=[
                    partition(partition_index=number, committed_offset=offset)
                    for number, offset in offsets.items()
                ],
            )
        ],
    )
    response = client._cluster.send_repeatable(
        lambda: client._cluster.coordinator(Kind.GROUP, group, soon()), lambda: request, soon()
    )
    assert {one.error_code for topic in response.topics for one in topic.partitions} == {0}
    named = [TopicPartition(NUMBERS_TOPIC, number) for number in offsets]
    wait_until(lambda: not client.committed_offsets(group, soon(), named))


def test_an_expired_transactional_id_is_taken_anew(proxied, small, looking):
    assert run_copy(small, micro_batches=1).error is None
    before = transaction_state(looking, small.name)
    wait_for_state(looking, small.name, "")
    assert run_copy(small).error is None
    assert transaction_state(looking, small.name).producer_id != before.producer_id
    proxied.check(small)


def test_an_id_that_expired_under_a_process_ends_it_and_the_next_goes_on(proxied, small, looking):
    """Whoever held the id meanwhile is forgotten with it, so the process can't know of a takeover
    and stops. The identity that it was granted while it found out is used by nobody."""
    with Copy(small) as copy:
        copy.start()
        copy.step()
        wait_for_state(looking, small.name, "")
        with pytest.raises(AttemptFailedError, match="expired"):
            copy.step()
        assert "expired while it was idle" in copy.told.of(events.Warned)[-1].message
    assert run_copy(small).committed == [1]
    proxied.check(small)


def test_an_older_copy_whose_id_expired_does_not_come_back(proxied, small, looking):
    with Copy(small) as older, Copy(small) as newer:
        older.start()
        older.step()
        wait_for_state(looking, small.name, "")
        newer.start()
        with pytest.raises(FencedError):
            older.step()
        newer.drain()
        assert not newer.told.of(events.AttemptFailed)
        newer.stop()
    proxied.check(small)


def test_an_expired_producer_id_is_used_again(proxied, small, looking):
    with Copy(small) as copy:
        copy.start()
        copy.step()
        written = [TopicPartition(small.target, number) for number in range(PARTITIONS)]
        written.append(TopicPartition(small.ledger, 0))
        wait_until(lambda: not any(looking.describe_producers(written, soon()).values()))
        copy.drain()
        assert not copy.told.of(events.AttemptFailed)
        copy.stop()
    proxied.check(small)


@pytest.mark.parametrize("gone", [(0,), (0, 1)], ids=["one partition's", "all"])
def test_expired_group_offsets_are_told_and_put_back_by_the_next_commit(
    proxied, small, looking, gone
):
    with Copy(small) as copy:
        copy.start()
        copy.step()
        expire_offsets(looking, small.name, dict.fromkeys(gone, RECORDS))
        copy.step()
        told = [event.message for event in copy.told.of(events.Warned)]
        assert len(told) == 1
        assert all(f"{NUMBERS_TOPIC}-{number} is at nothing" in told[0] for number in gone)
        offsets = kafka_io.group_offsets(proxied.bootstrap, small.name, NUMBERS_TOPIC)
        assert offsets == proxied.ends
        copy.stop()
    proxied.check(small)


def test_expired_group_offsets_do_not_move_a_start(proxied, small, looking):
    assert run_copy(small, micro_batches=1).error is None
    expire_offsets(looking, small.name, dict.fromkeys(range(PARTITIONS), RECORDS))
    assert run_copy(small).committed == [1]
    proxied.check(small)


def test_the_logs_of_all_of_them_are_well_formed(behind_proxy):
    behind_proxy.check_logs("expiry-*.*")


def test_the_audit_table_forgets_when_the_broker_does(
    small: Job, looking: KafkaClient, tmp_path: Path
) -> None:
    assert run_copy(small).error is None
    table = TransactionsTable(tmp_path / "transactions")
    made = Projection(table, looking, small.name, small.ledger, small.name)
    assert made.catch_up(soon()).is_settled
    rows = made.producers.table.query("SELECT idle_ms FROM producers WHERE topic IS NOT NULL")
    assert {row["idle_ms"] for row in rows} == {1_000}
