"""How long a start reads a ledger, however many records it has."""

from __future__ import annotations

import statistics
import time
import uuid

import pyarrow as pa
import pytest
from bench.conftest import Figures
from support.simulated_broker.wire import values

from eos.deadline import Deadline
from eos.kafka.api import Identity, TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, encode, stamp
from eos.kafka.settings import KafkaSettings
from eos.ledger.ledger import Ledger
from eos.ledger.receipt import Receipt
from eos.ledger.record import AttemptRecord, Position, encoded
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction.coordinator import Conclusion, Coordinator

OWNER = {"deployment": "d", "host": "h", "process": 1}
RECORDS, AT_A_TIME = 100_000, 1_000
PARTITIONS = 16
ROUNDS = 20


@pytest.mark.timeout(300)
def test_ledger(broker: EmbeddedKafka, figures: Figures) -> None:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    client = KafkaClient(KafkaSettings((broker.bootstrap,)), TransactionProfile.TV2)
    try:
        deadline = Deadline.after_ms(240_000)
        ledger = Ledger(client, f"{name}.ledger", name, OWNER)
        ledger.ensure_topic(1, deadline)
        _fill(client, ledger, name, deadline)
        rounds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            last = ledger.read_last(deadline)
            rounds.append((time.perf_counter() - start) * 1000)
            assert last is not None
            assert last.position.batch_id == RECORDS - 1
    finally:
        client.close()
    figures.keep("ledger_open_ms", rounds)
    shown = f"{statistics.median(rounds):.0f} ms"
    figures.add(f"a ledger of {RECORDS:,} records opens, median", shown, "2,000 ms")


def _fill(client: KafkaClient, ledger: Ledger, name: str, deadline: Deadline) -> None:
    """About a day of a pipeline at one a second. A thousand in each transaction, for speed: the
    last one, which alone is decoded, is in one of its own."""
    coordinator = Coordinator(client, name, name, 60_000)
    coordinator.fence(deadline)
    sources = [TopicPartition(f"{name}.in", number) for number in range(PARTITIONS)]
    receipts = [Receipt(f"{name}.out", n, 5_000, 0, 4_999, 300_000, n) for n in range(PARTITIONS)]

    def made(number: int, identity: Identity) -> bytes:
        position = Position(dict.fromkeys(sources, number), {}, name, number)
        attempt = AttemptRecord(1, identity, position.ends, receipts)
        return encoded(name, OWNER, "attempt", position, attempt, identity=identity)

    def commit(blob: bytes, identity: Identity) -> None:
        coordinator.produce({ledger.partition: stamp(blob, identity, 0)}, deadline)
        assert coordinator.commit(deadline) is Conclusion.COMMITTED

    for first in range(0, RECORDS - 1, AT_A_TIME):
        identity = coordinator.begin(deadline)
        numbers = range(first, min(first + AT_A_TIME, RECORDS - 1))
        bodies = [body for number in numbers for body in values(made(number, identity))]
        column = pa.array(bodies, pa.binary())
        columns = Columns(key=column.take([0] * len(bodies)), value=column)
        commit(encode(columns, Codec.LZ4).blob, identity)
    identity = coordinator.begin(deadline)
    commit(made(RECORDS - 1, identity), identity)
