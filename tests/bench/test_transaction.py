"""What a transaction costs the driver, beside the records: begin, ledger record, offsets, end."""

from __future__ import annotations

import statistics
import time
import uuid
from itertools import pairwise

import pytest
from bench.conftest import Figures

from eos.deadline import Deadline
from eos.kafka.api import CommittedOffset, TopicPartition, TransactionProfile
from eos.kafka.client import KafkaClient
from eos.kafka.settings import KafkaSettings
from eos.ledger.ledger import Ledger
from eos.ledger.receipt import Receipt
from eos.ledger.record import AttemptRecord, Position, stamped
from eos.local.embedded_kafka import EmbeddedKafka
from eos.transaction.coordinator import Conclusion, Coordinator

OWNER = {"deployment": "d", "host": "h", "process": 1}
ROUNDS = 200
WARM_UP = 20
PARTITIONS = 4


@pytest.mark.timeout(300)
def test_transaction(broker: EmbeddedKafka, figures: Figures) -> None:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    client = KafkaClient(KafkaSettings((broker.bootstrap,)), TransactionProfile.TV2)
    try:
        rounds = _measured(client, name)
    finally:
        client.close()
    figures.keep("transaction_ms", rounds)
    core = [begin + offsets + end for begin, _, offsets, end in rounds]
    whole = [sum(each) for each in rounds]
    figures.add("begin + offsets + end, median", f"{statistics.median(core):.1f} ms", "30 ms")
    figures.add("the same, 95 of 100 are below", f"{statistics.quantiles(core, n=20)[-1]:.1f} ms")
    figures.add("with the ledger record, median", f"{statistics.median(whole):.1f} ms")


def _measured(client: KafkaClient, name: str) -> list[list[float]]:
    """Milliseconds of each step of each round: begin, ledger record, offsets, end."""
    deadline = Deadline.after_ms(240_000)
    ledger = Ledger(client, f"{name}.ledger", name, OWNER)
    ledger.ensure_topic(1, deadline)
    client.create_topic(f"{name}.in", PARTITIONS, 1, {}, deadline)
    coordinator = Coordinator(client, name, name, 60_000)
    coordinator.fence(deadline)
    sources = [TopicPartition(f"{name}.in", number) for number in range(PARTITIONS)]
    starts = dict.fromkeys(sources, 0)
    receipts = [Receipt(f"{name}.out", n, 5_000, 0, 4_999, 300_000, n) for n in range(PARTITIONS)]
    rounds = []
    for number in range(WARM_UP + ROUNDS):
        ends = dict.fromkeys(sources, number)
        marks = [time.perf_counter()]
        identity = coordinator.begin(deadline)
        marks.append(time.perf_counter())
        position = Position(ends=ends, query_id=name, batch_id=number, topic_ids={})
        record = ledger.record("attempt", position, AttemptRecord(1, identity, starts, receipts))
        coordinator.produce({ledger.partition: stamped(record, identity)}, deadline)
        marks.append(time.perf_counter())
        offsets = {tp: CommittedOffset(end) for tp, end in ends.items()}
        coordinator.commit_offsets(offsets, deadline)
        marks.append(time.perf_counter())
        assert coordinator.commit(deadline) is Conclusion.COMMITTED
        marks.append(time.perf_counter())
        rounds.append([(b - a) * 1000 for a, b in pairwise(marks)])
    return rounds[WARM_UP:]
