"""What a lane says when its writer gives up, or when a record batch is too large."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eos.errors import AttemptFailedError, NoAnswerError, RecordRefusedError
from eos.kafka.api import Identity, ProduceAnswer, TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.records.record_batch import Columns, encode
from eos.ledger.receipt import AppendedBatch
from eos.transaction.partition_queue import PartitionQueue

LOST = NoAnswerError("example", "Produce could not be sent to broker 2: its deadline passed")


@pytest.fixture
def refused() -> PartitionQueue:
    """Its record batch got a 19, and is on its way again."""
    lane = PartitionQueue(TopicPartition("out", 0), Identity(7, 0))
    columns = Columns(key=pa.nulls(1, pa.binary()), value=pa.array([b"v"], pa.binary()))
    batch = encode(columns, Codec.NONE, 0)
    lane.add(batch.blob, batch.records, batch.digest)
    (item,) = lane.items
    lane.sent(item)
    lane.process(item, ProduceAnswer(19))
    lane.resend()
    lane.sent(item)
    return lane


def test_a_request_for_which_no_time_was_left_does_not_hide_the_cause(
    refused: PartitionQueue,
) -> None:
    refused.lost(LOST, is_late=True)
    assert "NOT_ENOUGH_REPLICAS (19)" in refused.unfinished().message


def test_a_leader_that_was_lost_is_the_newer_cause(refused: PartitionQueue) -> None:
    refused.lost(LOST)
    assert "out-0: Produce could not be sent" in refused.unfinished().message


@pytest.mark.parametrize(("records", "kind"), [(1, RecordRefusedError), (3, AttemptFailedError)])
def test_only_a_single_record_that_is_too_large_ends_the_run(records: int, kind: type) -> None:
    lane = PartitionQueue(TopicPartition("out", 0), Identity(7, 0))
    values = pa.array([b"v"] * records, pa.binary())
    batch = encode(Columns(key=pa.nulls(records, pa.binary()), value=values), Codec.NONE, 0)
    lane.add(batch.blob, batch.records, batch.digest)
    lane.sent(lane.items[0])
    with pytest.raises(kind, match=r"MESSAGE_TOO_LARGE \(10\) to Produce for out-0") as stop:
        lane.process(lane.items[0], ProduceAnswer(10))
    assert stop.value.fields["kafka_error"] == 10


def test_a_receipt_has_the_last_five_record_batches() -> None:
    queue = PartitionQueue(TopicPartition("out", 0), Identity(7, 0))
    for number in range(7):
        values = pa.array([b"v"] * 2, pa.binary())
        columns = Columns(key=pa.nulls(2, pa.binary()), value=values)
        batch = encode(columns, Codec.NONE, 1_000 + number)
        queue.add(batch.blob, batch.records, batch.digest)
        queue.sent(queue.items[0])
        queue.process(queue.items[0], ProduceAnswer(0, offset=100 + 3 * number))
    assert queue.receipt().batches == tuple(
        AppendedBatch(2 * n, 2 * n + 1, 100 + 3 * n, 101 + 3 * n, 1_000 + n) for n in range(2, 7)
    )
