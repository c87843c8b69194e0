"""The output of `eos audit --producers` that the documents show."""

from __future__ import annotations

from datetime import datetime

import pytest
from support.docs import blocks, require_shown

from eos.audit.producer_states import ProducerStates
from eos.inspect import producers_render
from eos.inspect.producers_live import compare
from eos.inspect.producers_render import ProducersResult
from eos.kafka.api import DescribedProducer, DescribedTransaction, Identity, TopicPartition
from eos.kafka.records.parser import Marker
from eos.ledger.receipt import AppendedBatch, Receipt
from eos.ledger.record import LedgerRecord, Position

BLOCKS = dict(blocks(""))
LEDGER, OUT = TopicPartition("eos.ledger.orders", 0), TopicPartition("orders.enriched", 0)
AT_MS = int(datetime.fromisoformat("2026-11-23T14:48:40.200+00:00").timestamp() * 1000)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> ProducerStates:
    """A start, and a micro-batch with six record batches; the second partition was aborted."""
    monkeypatch.setattr(producers_render, "_now_ms", lambda: AT_MS + 60_000)
    found = ProducerStates(LEDGER)
    batches = tuple(
        AppendedBatch(170 * n, 170 * n + 169, 170 * n, 170 * n + 169, AT_MS) for n in range(6)
    )
    whole = Receipt("orders.enriched", 0, 1020, 0, 1019, 9, 1, batches[1:])
    part = Receipt("orders.enriched", 1, 170, 0, 169, 9, 1, batches[:1])
    failed = ({"producer_id": 1, "epoch": 2},)
    for epoch, receipts, aborted in ((0, (), ()), (1, (whole, part), ()), (3, (whole,), failed)):
        record = LedgerRecord(
            "attempt" if receipts else "start",
            Position({}, {}),
            {},
            AT_MS,
            2 * epoch,
            Identity(1, epoch),
            {"receipts": [each.as_json() for each in receipts]},
            failed=aborted,
        )
        marker = Marker(2 * epoch + 1, Identity(1, epoch + 1), True, 0, AT_MS + 35)
        assert not found.apply(record, marker)
    return found


def test_producer_states(states: ProducerStates) -> None:
    result = ProducersResult("orders", "eos.orders", "/var/lib/eos/audit/producers", states)
    require_shown(BLOCKS["producers.md-1"], producers_render.lines(result))


def test_producer_states_beside_the_leaders(states: ProducerStates) -> None:
    def leader(epoch: int, coordinator_epoch: int = 0) -> list[DescribedProducer]:
        return [DescribedProducer(Identity(1, epoch), -1, -1, coordinator_epoch)]

    producers = {LEDGER: leader(4), OUT: leader(5), OUT._replace(partition=1): leader(3)}
    coordinator = DescribedTransaction("CompleteCommit", Identity(1, 4), 60_000)
    found = compare(states, producers, coordinator, AT_MS + 60_000)
    table = "/var/lib/eos/audit/producers"
    result = ProducersResult("orders", "eos.orders", table, states, found)
    require_shown(BLOCKS["producers.md-2"], producers_render.lines(result))
