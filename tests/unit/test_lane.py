"""What a lane says when its writer gives up."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eos.encode.codec import Codec
from eos.encode.record_batch import Columns, encode
from eos.errors import NoAnswerError
from eos.transaction.lane import Lane
from eos.transaction.port import Identity, ProduceAnswer, TopicPartition

LOST = NoAnswerError("Produce could not be sent: broker 2: the time for it was up")


@pytest.fixture
def refused() -> Lane:
    """Its record batch got a 19, and is on its way again."""
    lane = Lane(TopicPartition("out", 0), Identity(7, 0))
    columns = Columns(key=pa.nulls(1, pa.binary()), value=pa.array([b"v"], pa.binary()))
    batch = encode(columns, Codec.NONE, 0)
    lane.add(batch.blob, batch.records, batch.digest)
    (item,) = lane.items
    lane.sent(item)
    lane.answered(item, ProduceAnswer(19))
    lane.resend()
    lane.sent(item)
    return lane


def test_a_request_for_which_no_time_was_left_does_not_hide_the_cause(refused: Lane) -> None:
    refused.lost(LOST, is_late=True)
    assert "NOT_ENOUGH_REPLICAS (19)" in refused.unfinished().message


def test_a_leader_that_was_lost_is_the_newer_cause(refused: Lane) -> None:
    refused.lost(LOST)
    assert "out-0: Produce could not be sent" in refused.unfinished().message
