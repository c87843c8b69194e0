"""A new partition of a source topic that lost its first records stops a startup, unless an operator
decided so."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support import doubles
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import PromiseBrokenError
from eos.kafka.api import TopicPartition
from eos.ledger.record import Position
from eos.startup import resume_position

KNOWN, NEW = TopicPartition("in", 0), TopicPartition("in", 1)
ANOTHER = TopicPartition("another", 0)


@pytest.mark.parametrize(
    ("is_fresh", "last", "firsts", "is_refused"),
    [
        (False, "stop", {NEW: 7}, True),
        (False, "recovery", {NEW: 7}, True),
        (False, "stop", {NEW: 0}, False),
        (True, "stop", {NEW: 7}, True),
        (True, "attempt", {NEW: 7}, True),
        (True, "attempt", {NEW: 0}, False),
        (True, "recovery", {NEW: 7}, False),
        (True, None, {NEW: 7}, False),
        (True, "stop", {ANOTHER: 7}, False),
    ],
)
def test_a_new_partition_is_whole(
    monkeypatch: pytest.MonkeyPatch,
    is_fresh: bool,
    last: str | None,
    firsts: dict[TopicPartition, int],
    is_refused: bool,
) -> None:
    monkeypatch.setattr(resume_position, "_source_topics", lambda *_: None)
    monkeypatch.setattr(resume_position, "_partitions", lambda _: frozenset({KNOWN, *firsts}))
    source: Any = SimpleNamespace(client=None, earliest=lambda new: {tp: firsts[tp] for tp in new})
    checkpoint: Any = SimpleNamespace(
        planned=lambda: None if is_fresh else 3, known_partitions=frozenset
    )
    record: Any = last and SimpleNamespace(kind=last)
    asked = doubles.plan(), source, replace(Position({}, {}), ends={KNOWN: 5}), checkpoint
    if is_refused:
        with raises("new_truncated", PromiseBrokenError):
            resume_position.require_new_whole(*asked, Deadline.after_ms(1_000), record)
    else:
        resume_position.require_new_whole(*asked, Deadline.after_ms(1_000), record)
