"""The writing part of a task: what it does before its first record batch."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from support.simulated_broker.runs import TARGETS, WriterRun, make_batch

from eos.deadline import Deadline
from eos.encode.stage import MANIFEST_TARGET, SCHEMA
from eos.faults import CrashPlan
from eos.spark import tasks
from eos.spark.tasks import WriteStage


def test_the_time_to_write_begins_with_the_first_record_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow step of the user computes the rows inside the loop of `write`."""
    run, happened = WriterRun(), list[str]()

    class Seen(Deadline):
        @classmethod
        def after_ms(cls, timeout_ms: float) -> Deadline:
            happened.append("limit")
            return cls(time.monotonic() + timeout_ms / 1000)

    monkeypatch.setattr(tasks, "Deadline", Seen)
    stage = WriteStage(
        run.client.settings, run.client.profile, "id", run.identity, TARGETS, 60_000, CrashPlan()
    )
    batch = make_batch(0, 2)
    rows = (
        [[0], [0], [0], [0], [2], [batch.digest], [batch.blob]],
        [[0], [MANIFEST_TARGET], [0], [1], [2], [0], [struct.pack("<2i", 0, 2)]],
    )

    def computed(these: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        for row in these:
            happened.append("computed")
            yield pa.RecordBatch.from_arrays([*map(pa.array, row)], names=SCHEMA.names)

    stage.write(computed(rows[1:]), 0, run.client)
    assert happened == ["computed"], "without records there is nothing to send"
    happened.clear()
    stage.write(computed(rows), 0, run.client)
    assert happened == ["computed", "limit", "computed"]
    assert [entry.records for entry in run.broker.read_uncommitted(TARGETS.partitions[0])] == [2]
