"""Fetch responses that no broker gives on demand: throttled, failed once, or with damage."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import KafkaRefusedError, PromiseBrokenError
from eos.kafka.api import Identity, TopicPartition
from eos.kafka.compression_type import Codec
from eos.kafka.fetch import fetch
from eos.kafka.record_reader import read_records
from eos.kafka.records.record_batch import Columns, encode, stamp

ATTRIBUTES_AT, CONTROL = 22, 0x20
TP = TopicPartition("t", 0)
VALUES = pa.array([b"v"], pa.binary())
BLOB = bytes(stamp(encode(Columns(VALUES, VALUES), Codec.NONE, 0).blob, Identity(1, 0), 0))


def response(blob: bytes = BLOB, error: int = 0, *, is_failed: bool = False) -> Any:
    part = SimpleNamespace(error_code=error, records=blob, aborted_transactions=None)
    topic = SimpleNamespace(partitions=[part])
    return SimpleNamespace(error_code=error if is_failed else 0, responses=[topic])


THROTTLED = SimpleNamespace(error_code=0, responses=[])


class Cluster:
    """A leader that sends these responses, and then the record."""

    def __init__(self, *responses: Any) -> None:
        self.responses = deque([*responses, response()])

    def leaders(self, *_: object) -> dict[TopicPartition, int]:
        return {TP: 1}

    def try_once(self, *_: object) -> Any:
        return self.responses.popleft()

    def pause(self, _deadline: Deadline) -> None:
        """Return at once."""


def soon() -> Deadline:
    return Deadline.after_ms(60_000)


def records(cluster: Any) -> bytes | None:
    (record,) = read_records(cluster, TP, 0, 1, True, soon(), 9, 1 << 20)
    return record.value


def log_bytes(cluster: Any) -> bytes | None:
    return b"v" if fetch(cluster, TP, 0, soon(), 1 << 20).blob == BLOB else None


READERS = pytest.mark.parametrize("read", [records, log_bytes])


@READERS
@pytest.mark.parametrize(
    "answer",
    [THROTTLED, response(b"", -1), response(b"", -1, is_failed=True), response(b"", 6)],
    ids=["throttled", "failed partition", "failed request", "moved leader"],
)
def test_after_an_answer_that_may_pass_the_request_is_repeated(
    read: Callable[[Any], bytes | None], answer: Any
) -> None:
    assert read(Cluster(answer, answer)) == b"v"


@READERS
@pytest.mark.parametrize("is_failed", [False, True])
def test_an_answer_that_does_not_pass_is_final(
    read: Callable[[Any], bytes | None], is_failed: bool
) -> None:
    with pytest.raises(KafkaRefusedError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(Cluster(response(b"", 29, is_failed=is_failed)))


def test_damage_that_makes_a_record_batch_a_marker_is_found() -> None:
    blob = bytearray(BLOB)
    blob[ATTRIBUTES_AT] |= CONTROL
    with raises("batch_unreadable", PromiseBrokenError):
        read_records(Cluster(response(bytes(blob))), TP, 0, 1, True, soon(), 9, 1 << 20)  # type: ignore[arg-type]
