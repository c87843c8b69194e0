"""`eos replay` refuses records that their topic could delete before the pipeline reads them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import UsageError
from eos.kafka.api import TopicPartition
from eos.replay.replayer import _Replay

HOUR_MS = 3_600_000


def require(**configs: str) -> None:
    """Replay a record that is two hours old to a topic with these configs."""
    found = {"retention_ms": str(HOUR_MS), "cleanup_policy": "delete"} | configs

    def config(_topic: str, name: str, _deadline: Deadline) -> str:
        return found.get(name.replace(".", "_"), "CreateTime")

    planned = SimpleNamespace(names=SimpleNamespace(pipeline="p"))
    client = SimpleNamespace(topic_config=config)
    topic: Any = SimpleNamespace(planned=planned, client=client)
    unused: Any = None
    at_ms = int(time.time() * 1000) - 2 * HOUR_MS
    letter: Any = SimpleNamespace(
        origin=SimpleNamespace(source=TopicPartition("in", 0), offset=7, timestamp_ms=at_ms)
    )
    replay = _Replay(topic, unused, unused, {}, unused, unused)
    replay._require_in_topic("in", [letter], Deadline.after_ms(1_000))


@pytest.mark.parametrize(
    "configs",
    [
        {"retention_ms": "-1"},
        {"retention_ms": str(3 * HOUR_MS)},
        {"cleanup_policy": "compact"},
        {"message_timestamp_type": "LogAppendTime"},
    ],
)
def test_records_that_their_topic_keeps_are_replayed(configs: dict[str, str]) -> None:
    require(**configs)


def test_a_record_older_than_its_topics_retention_is_refused() -> None:
    with raises("replay_record_expired", UsageError):
        require()
