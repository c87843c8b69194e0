"""A ledger that a stale leader shows: a broker that stood still leads on in its own eyes when it
wakes, and tells ends that are long past.

Who believes it must not run again what is committed. Its first write goes to the true leader, and
lands behind what was not shown: it ends with exit code 5, and the next start reads all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from support.copies.pipeline_copy import Copy
from support.copies.scenes import Scene, Scenes, run_to_end
from support.errors import raises

from eos.deadline import Deadline
from eos.errors import EosError, PromiseBrokenError, Recovery
from eos.kafka.api import CommittedOffset, TopicPartition
from eos.kafka.client import KafkaClient
from eos.ledger import ledger as ledger_module

RECORDS = 20  # one micro-batch


@dataclass
class Stale:
    """A wire whose reads come from a leader that stood still since it was made. `times`: how often
    the ledger's end is told as it was; `has_group`: it also coordinates the group."""

    client: KafkaClient
    ledger: TopicPartition
    group: Mapping[TopicPartition, CommittedOffset]
    has_group: bool
    times: int

    def __post_init__(self) -> None:
        self.end = self._list_offsets([self.ledger], "latest", committed=True)[self.ledger]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], at: str, *, committed: bool
    ) -> Mapping[TopicPartition, int]:
        deadline = Deadline.after_ms(300_000)
        return self.client.list_offsets(partitions, at, committed=committed, deadline=deadline)

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        at: str,
        *,
        committed: bool,
        deadline: Deadline,
    ) -> Mapping[TopicPartition, int]:
        found = self.client.list_offsets(partitions, at, committed=committed, deadline=deadline)
        if at == "latest" and self.ledger in found and self.times:
            self.times -= 1
            return {self.ledger: self.end}
        return found

    def committed_offsets(self, *asked: Any) -> Mapping[TopicPartition, CommittedOffset]:
        return self.group if self.has_group else self.client.committed_offsets(*asked)


def stood_still(scenes: Scenes, *, has_group: bool, times: int = 10_000) -> tuple[Scene, Stale]:
    """A pipeline that ran twice, and the wire of who saw the first time only."""
    scene = scenes.new(RECORDS)
    with Copy(scene.job) as first:
        assert run_to_end(first) is None
        group = first.client.committed_offsets(scene.job.name, Deadline.after_ms(300_000))
    stale = Stale(scene.job.client(), TopicPartition(scene.job.ledger, 0), group, has_group, times)
    scene.feed(RECORDS)
    with Copy(scene.job) as second:
        assert run_to_end(second) is None
        assert second.committed == [1]
    scene.feed(RECORDS)
    return scene, stale


def start(scene: Scene, stale: Stale) -> EosError | None:
    with Copy(scene.job) as copy:
        copy.client.close()
        copy.client = stale
        return run_to_end(copy)


@pytest.mark.parametrize("has_group", [False, True])
def test_a_start_that_reads_a_past_end_writes_nothing(scenes: Scenes, has_group: bool) -> None:
    """Even where the group's offsets, true, would tell of a promise that somebody broke."""
    scene, stale = stood_still(scenes, has_group=has_group)
    before = scene.ledger()
    error = start(scene, stale)
    assert error is not None
    assert error.recovery is Recovery.RESTART, error
    assert error.code == "ledger_stale"
    assert error.fields["offset"] == stale.end
    assert scene.ledger() == before
    with Copy(scene.job) as third:
        assert run_to_end(third) is None
        assert third.committed == [2]
    scene.check()


def test_an_end_below_what_was_acknowledged_is_asked_for_again(scenes: Scenes) -> None:
    """Who reads again has written since: an end before that is no end."""
    scene, stale = stood_still(scenes, has_group=False)
    with Copy(scene.job) as copy:
        copy.start()
        stale.client.close()
        stale.client, stale.times = copy.client, 3
        ledger = copy.batches.ledger
        ledger._client = stale
        last = ledger.read_last(Deadline.after_ms(300_000))
        assert last is not None
        assert last.kind == "start"
        assert last.offset > stale.end
        assert stale.times == 0
        copy.drain()
        copy.stop()
    scene.check()


def test_a_ledger_that_lost_what_it_acknowledged_stops_the_pipeline(
    scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an unclean leader election: the next write lands where another one had."""
    monkeypatch.setattr(ledger_module, "_SURE_AFTER_MS", 500)
    scene, stale = stood_still(scenes, has_group=False)
    stale.client.close()
    with Copy(scene.job) as copy:
        copy.start()
        assert copy.batches.ledger._end is not None
        copy.batches.ledger._end += 2
        with raises("ledger_cut", PromiseBrokenError):
            copy.drain()
        ledger = copy.batches.ledger
        ledger._end = 10_000
        with raises("ledger_cut", PromiseBrokenError):
            ledger.read_last(Deadline.after_ms(4_000))
    with Copy(scene.job) as another:
        assert run_to_end(another) is None
    scene.check()
