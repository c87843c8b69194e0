"""A writer whose client id has a quota on a real broker: slower, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import google_crc32c
import pyarrow as pa
import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest
from support.kafka.kafka_io import NOW_MS

from eos.deadline import Deadline
from eos.faults import CrashPlan
from eos.kafka.api import TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.kafka.pending_produce import PendingProduce
from eos.kafka.records.record_batch import Columns, encode
from eos.kafka.settings import KafkaSettings
from eos.kafka.target_partitions import Targets
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.writer import Writer

# The broker averages over ten seconds, so ten seconds' worth passes before it throttles: 2 of these
# 2.4 MB. Many small requests, so that more than fit in flight are still to be sent by then.
QUOTA = 200_000  # bytes/s
PARTITIONS, RECORD_BATCHES, RECORDS = 2, 58, 20


def soon() -> Deadline:
    return Deadline.after_ms(300_000)


class Watched(KafkaClient):
    """Notes every Produce request, and whether its connection was paused when it was handed in."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings, TransactionProfile.TV2)
        self.produced: list[PendingProduce] = []
        self.into_a_pause = 0

    def send_produce(self, leader: int, *rest, **named) -> PendingProduce:
        lane = self._connections._channels.get(leader)
        if lane is not None and lane.connection is not None and lane.connection.paused:
            self.into_a_pause += 1
        self.produced.append(super().send_produce(leader, *rest, **named))
        return self.produced[-1]


@pytest.fixture
def throttled(client: KafkaClient, broker: EmbeddedKafka, name: str) -> Iterator[Watched]:
    """A Wire whose client id may send QUOTA; no other client is touched."""

    def alter(*, remove: bool) -> None:
        entry = AlterClientQuotasRequest.EntryData
        entity = entry.EntityData(entity_type="client-id", entity_name=name)
        change = entry.OpData(key="producer_byte_rate", value=QUOTA, remove=remove)
        response = client._cluster.query_any(
            lambda: AlterClientQuotasRequest(
                version=1, entries=[entry(entity=[entity], ops=[change])], validate_only=False
            ),
            soon(),
        )
        assert [one.error_code for one in response.entries] == [0]

    alter(remove=False)
    watched = Watched(KafkaSettings((broker.bootstrap,), client_id=name))
    try:
        yield watched
    finally:
        watched.close()
        alter(remove=True)


def values(target: int, number: int) -> list[bytes]:
    return [b"%d.%d.%d" % (target, number, each) + b"." * 1_000 for each in range(RECORDS)]


def test_a_throttled_writer_loses_and_repeats_nothing(client, throttled, name, make_batch):
    # The topics come after the quota in the metadata log: who leads them knows the quota.
    client.create_topic(name, PARTITIONS, 1, {}, soon())
    client.create_topic(f"{name}-l", 1, 1, {}, soon())
    targets = Targets.of({name: (PARTITIONS, 1_000_000)})
    owner = Coordinator(client, name, name, 60_000)
    owner.fence(soon())
    writer = Writer(throttled, name, owner.begin(soon()), targets, soon(), CrashPlan())
    digests = [0] * PARTITIONS
    for number in range(RECORD_BATCHES):
        for target in range(PARTITIONS):
            array = pa.array(values(target, number), pa.binary())
            columns = Columns(key=pa.nulls(RECORDS, pa.binary()), value=array)
            batch = encode(columns, Codec.NONE, NOW_MS)
            digests[target] = google_crc32c.extend(digests[target], batch.digest.to_bytes(4, "big"))
            writer.add(target, batch.blob, batch.records, batch.digest)
        writer.advance()
    receipts = writer.finish()
    owner.produce(
        {TopicPartition(f"{name}-l", 0): make_batch(owner.identity, 0, b"ledger")}, soon()
    )
    assert owner.commit(soon()) is Conclusion.COMMITTED

    assert not [one for one in throttled.produced if one.pending.failed]
    answers = [one.pending.wait(soon()) for one in throttled.produced]
    assert sum(answer.throttle_time_ms for answer in answers) > 0
    assert throttled.into_a_pause > 0
    for target, at in enumerate(targets.partitions):
        receipt, expected = receipts[target], RECORD_BATCHES * RECORDS
        assert (receipt.topic, receipt.partition) == at
        assert (receipt.offset_first, receipt.offset_last) == (0, expected - 1)
        assert (receipt.records, receipt.digest) == (expected, digests[target])
        # One more than there are: the commit marker's offset.
        records = client.read_records(at, 0, expected + 1, committed=True, deadline=soon())
        assert [one.value for one in records] == [
            value for number in range(RECORD_BATCHES) for value in values(target, number)
        ]
