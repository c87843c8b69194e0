"""The output of `eos plan --against-running` that docs/upgrades.md shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

from support.docs import blocks, require_shown
from support.doubles import plan as planned_of
from support.errors import raises

import eos
from eos.config.source import KafkaSource
from eos.deadline import Deadline
from eos.inspect.against_running import Comparison, lines
from eos.inspect.file_changes import changes, effects
from eos.kafka.api import Identity
from eos.kafka.cluster import TopicInfo
from eos.ledger.record import LedgerRecord, Position
from eos.startup import resume_position

BLOCKS = dict(blocks(""))
AT_MS = int(datetime.fromisoformat("2026-11-23T14:48:40.335+00:00").timestamp() * 1000)
BEFORE = {
    "source.kafka.topics": '["orders.eu", "orders.us"]',
    "source.kafka.max_records": "20000",
    "transform[1].sql": "sha256:0",
}
NOW = {
    "source.kafka.topics": '["orders.eu"]',
    "source.kafka.max_records": "50000",
    "transform[1].sql": "sha256:1",
}


def test_changes_since_the_last_run() -> None:
    position = Position({}, {"orders.eu": "a", "orders.us": "b"})
    planned = replace(planned_of(), source=KafkaSource(topics=("orders.eu",)))
    answers = SimpleNamespace(topics=lambda names, _: dict.fromkeys(names, TopicInfo("a", 1, 0)))
    source = SimpleNamespace(client=answers)
    with raises("left_out") as caught:
        resume_position._require_all_read(planned, source, position, Deadline.after_ms(1_000))
    error = caught.value
    found, others = effects(changes(BEFORE, NOW), BEFORE, NOW, [error], keeps_state=False)
    assert not others
    owner = {"deployment": "d", "version": eos.__version__}
    last = LedgerRecord("stop", position, owner, AT_MS, 4, Identity(1, 2), declared=BEFORE)
    result = Comparison("orders", last, last, found, others, [error], [], is_elsewhere=False)
    require_shown(BLOCKS["upgrades.md-3"], lines(result))
