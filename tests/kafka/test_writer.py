"""A writer on real brokers: what it hands back is what lies in the log, in both profiles."""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c
import pyarrow as pa
import pytest
from support.kafka.kafka_io import NOW_MS

from eos.deadline import Deadline
from eos.errors import AttemptFailedError, RecordRefusedError
from eos.faults import CrashPlan
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, encode
from eos.kafka.target_partitions import Targets
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.writer import Writer

PARTITIONS, RECORD_BATCHES, RECORDS = 4, 20, 50


def soon() -> Deadline:
    return Deadline.after_ms(300_000)


@pytest.fixture(params=["broker", pytest.param("older_broker", marks=pytest.mark.long)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    kafka: EmbeddedKafka = request.getfixturevalue(request.param)
    return kafka.bootstrap


@pytest.fixture
def on(clients: Callable[..., KafkaClient], bootstrap: str) -> Callable[[], KafkaClient]:
    """Makes a Wire of its own with the profile that the cluster gets."""

    def make() -> KafkaClient:
        client = clients(None, bootstrap)
        client.agree_on_profile(soon())
        return client

    return make


@pytest.fixture
def client(on: Callable[[], KafkaClient]) -> KafkaClient:
    return on()


@pytest.fixture
def targets(client: KafkaClient, name: str) -> Targets:
    client.create_topic(f"{name}-a", 3, 1, {}, soon())
    client.create_topic(f"{name}-b", 1, 1, {}, soon())
    return Targets.of({f"{name}-a": (3, 1_000_000), f"{name}-b": (1, 1_000_000)})


@pytest.fixture
def owner(client: KafkaClient, name: str) -> Coordinator:
    made = Coordinator(client, name, name, 60_000)
    made.fence(soon())
    return made


def a_writer(client: KafkaClient, name: str, identity: Identity, targets: Targets) -> Writer:
    return Writer(client, name, identity, targets, soon(), CrashPlan())


def values(target: int, number: int) -> list[bytes]:
    return [b"%d.%d.%d" % (target, number, each) + b"." * 1_000 for each in range(RECORDS)]


def encoded(target: int, number: int):
    array = pa.array(values(target, number), pa.binary())
    return encode(Columns(key=array, value=array), Codec.LZ4, NOW_MS)


def record(client: KafkaClient, name: str, owner: Coordinator, make_batch) -> None:
    """The ledger's part, without which nothing can be committed."""
    client.create_topic(f"{name}-l", 1, 1, {}, soon())
    batch = make_batch(owner.identity, 0, b"ledger")
    owner.produce({TopicPartition(f"{name}-l", 0): batch}, soon())


def test_receipts_are_what_lies_in_the_log(client, on, name, targets, owner, make_batch):
    identity = owner.begin(soon())
    writer = a_writer(on(), name, identity, targets)
    digests = [0] * PARTITIONS
    for number in range(RECORD_BATCHES):
        for target in range(PARTITIONS):
            batch = encoded(target, number)
            digests[target] = google_crc32c.extend(digests[target], batch.digest.to_bytes(4, "big"))
            writer.add(target, batch.blob, batch.records, batch.digest)
        writer.advance()
    receipts = writer.finish()
    states = client.describe_producers(targets.partitions, soon())
    record(client, name, owner, make_batch)
    assert owner.commit(soon()) is Conclusion.COMMITTED

    for target, at in enumerate(targets.partitions):
        receipt = receipts[target]
        records = client.read_records(
            at, 0, receipt.offset_last + 1, committed=True, deadline=soon()
        )
        expected = [v for number in range(RECORD_BATCHES) for v in values(target, number)]
        assert [one.value for one in records] == expected
        assert {(one.producer_id, one.epoch) for one in records} == {identity}
        assert [one.offset for one in records] == list(range(len(expected)))
        assert (receipt.topic, receipt.partition) == at
        last = receipt.batches[-1]
        assert len(receipt.batches) == min(5, RECORD_BATCHES)
        assert (last.sequence_last, last.offset_last) == (len(expected) - 1, receipt.offset_last)
        assert (receipt.offset_first, receipt.offset_last) == (0, len(expected) - 1)
        assert (receipt.records, receipt.digest) == (len(expected), digests[target])
        (state,) = states[at]
        assert state.sequence_last == receipt.sequence_last


def test_a_second_writer_of_the_same_identity_is_refused_before_it_sends(
    client, on, name, targets, owner
):
    identity = owner.begin(soon())
    first = a_writer(client, name, identity, targets)
    batch = encoded(2, 0)
    first.add(2, batch.blob, batch.records, batch.digest)
    first.finish()
    second = a_writer(on(), name, identity, targets)
    other = encoded(2, 1)
    second.add(2, other.blob, other.records, other.digest)
    with pytest.raises(AttemptFailedError, match=f"-a-2: another task .* sequence {RECORDS - 1}"):
        second.finish()
    owner.abort(soon())
    # the next attempt's identity is on the partition too by now, in the abort's marker
    third = a_writer(client, name, owner.begin(soon()), targets)
    third.add(2, other.blob, other.records, other.digest)
    assert third.finish()[2].records == RECORDS
    owner.abort(soon())


def test_a_writer_of_an_ended_attempt_is_refused(client, on, name, targets, owner):
    identity = owner.begin(soon())
    owner.abort(soon())
    straggler = a_writer(on(), name, identity, targets)
    batch = encoded(0, 0)
    straggler.add(0, batch.blob, batch.records, batch.digest)
    with pytest.raises(AttemptFailedError, match=r"-a-0"):
        straggler.finish()
    assert client.read_records(targets.partitions[0], 0, 0, committed=False, deadline=soon()) == []


def test_a_record_batch_that_is_too_large_is_named(client, name, targets, owner):
    big = pa.array([b"x" * 2_000_000], pa.binary())
    batch = encode(Columns(key=big, value=big), Codec.NONE)
    writer = a_writer(client, name, owner.begin(soon()), targets)
    writer.add(1, batch.blob, batch.records, batch.digest)
    with pytest.raises(RecordRefusedError, match=r"MESSAGE_TOO_LARGE \(10\) to Produce for .*-a-1"):
        writer.finish()
    owner.abort(soon())
