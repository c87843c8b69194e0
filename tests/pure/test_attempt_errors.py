"""The error of an attempt whose source changed: the same from a task and from the driver's work."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support import doubles
from support.errors import raises

from eos.checkpoint.offset_log import Ranges
from eos.errors import EosError, PromiseBrokenError
from eos.kafka.api import TopicPartition
from eos.ledger.record import Position
from eos.micro_batch.work import MicroBatchWork
from eos.seal import of_this_process

A, NEW = TopicPartition("a", 0), TopicPartition("a", 1)
HERE = Position({A: 5}, {"a": "id"})


def as_task(error: EosError) -> Exception:
    return RuntimeError(str(of_this_process().crossing(error)))


def as_driver(error: EosError) -> Exception:
    return error


def work(require_unchanged: Callable[..., None]) -> MicroBatchWork:
    source = SimpleNamespace(require_unchanged=require_unchanged)
    stages: Any = SimpleNamespace(plan=doubles.plan(), source=source)
    frame: Any = None
    return MicroBatchWork(stages, frame, 3, Ranges({A: 5}, {A: 9, NEW: 2}))


@pytest.mark.parametrize("raised", [as_task, as_driver])
@pytest.mark.parametrize("code", ["source_lost_records", "kafka_unknown_topic_or_partition"])
def test_a_changed_source_has_an_error_with_a_remedy(
    raised: Callable[[EosError], Exception], code: str
) -> None:
    checked = []

    def truncated(position: Position, starts: dict[TopicPartition, int]) -> None:
        checked.append((position, starts))
        raise PromiseBrokenError("truncated", "p: a-0 begins at offset 7")

    with raises("truncated"), work(truncated)._explained(HERE):
        raise raised(PromiseBrokenError(code, "an offset is gone"))
    assert checked == [(HERE, {A: 5, NEW: 0})]


@pytest.mark.parametrize("raised", [as_task, as_driver])
def test_without_a_change_the_error_remains(raised: Callable[[EosError], Exception]) -> None:
    error = PromiseBrokenError("source_lost_records", "an offset is gone")
    with raises("source_lost_records"), work(lambda *_: None)._explained(HERE):
        raise raised(error)
