"""Dedup in a task that reads records itself: which rows it holds, and which it passes on."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from support.dedup import policy, versions_in

from eos.dedup import stage as stages
from eos.dedup.optimistic_pass import DeferredCheck
from eos.dedup.policy import DROPPED
from eos.spark import header_validation
from eos.spark.header_validation import HeaderValidation

NAMES = ("p", "e", "s")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(numbers: list[int], offset: int) -> pa.RecordBatch:
    """Records of one producer with these numbers."""
    rows = [
        {
            "value": b"v" * 1000,
            "topic": "t",
            "partition": 0,
            "offset": offset + at,
            "headers": [
                {"key": key, "value": value}
                for key, value in zip(NAMES, (b"p", b"0", b"%d" % number), strict=True)
            ],
        }
        for at, number in enumerate(numbers)
    ]
    types = [pa.binary(), pa.string(), pa.int32(), pa.int64(), HEADERS]
    names = ("value", "topic", "partition", "offset", "headers")
    return pa.RecordBatch.from_pylist(rows, pa.schema(zip(names, types, strict=True)))


@pytest.mark.parametrize(("rows_max", "bytes_max", "waiting"), [(10, 1 << 30, 10), (9999, 5000, 5)])
def test_rows_wait_in_a_bounded_space(tmp_path, monkeypatch, rows_max, bytes_max, waiting):
    """Whichever bound comes first: that of rows or that of bytes."""
    monkeypatch.setattr(stages, "CHUNK_ROWS", rows_max)
    monkeypatch.setattr(header_validation, "HELD_BYTES_MAX", bytes_max)
    seen: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(60):
            seen.append(number)
            yield batch([number], number)

    validation = HeaderValidation(versions_in(tmp_path).begin("").stage, DROPPED, NAMES)
    for given, _ in enumerate(validation.accepted(batches())):
        assert len(seen) - given <= waiting
    assert given == 59


def test_a_batch_is_passed_on_without_the_records_that_are_not_accepted(tmp_path):
    validation = HeaderValidation(versions_in(tmp_path).begin("").stage, DROPPED, NAMES)
    sent = [batch([0, 1, 1, 2], 0), batch([0, 1, 2], 4), batch([3, 4], 7)]
    found = [each["offset"].to_pylist() for each in validation.accepted(iter(sent))]
    assert found == [[0, 1, 3], [], [7, 8]]


def test_all_stages_find_the_same_positions(tmp_path):
    """With one topic, and with a topic in each row."""
    sent = [batch([0, 1, 1, 2], 0), batch([0, 1, 2, 3], 4)]
    for topic in ("", "t"):
        versions = versions_in(tmp_path / (topic or "several"), policy(window=9))
        versions.topic = topic
        begun = versions.begin("")
        first = HeaderValidation(begun.optimistic_pass(), DROPPED, NAMES)
        assert sum(each.num_rows for each in first.accepted(iter(sent))) == 8
        assert begun.optimistic_pass().spool().counts == {("t", 0): 8}
        DeferredCheck(begun.stage, begun.optimistic_pass(), 1)(0)
        assert begun.validated() == {("t", 0): 8}
        lookup = HeaderValidation(begun.lookup(), DROPPED, NAMES)
        found = [each["offset"].to_pylist() for each in lookup.accepted(iter(sent))]
        assert found == [[0, 1, 3], [7]]
