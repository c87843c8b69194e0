"""The lag of a source, from what the run knows: by topic, in offsets and in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.doubles import EventLog

from eos.checkpoint.offset_log import Ranges
from eos.kafka.api import TopicPartition
from eos.observe import events
from eos.run import lag_watch
from eos.run.lag_watch import LagWatch

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Run:
    """A run whose position and source the test moves."""

    def __init__(self) -> None:
        self.now, self.newest, self.committed = 0.0, dict[str, dict[str, int]](), {}
        self.planned = Ranges({}, {})
        self.told = EventLog()
        self.watch = LagWatch(
            self._progress,
            lambda: self.planned,
            lambda: self.committed,
            self.told.emit,
            lambda: self.now,
        )

    def _progress(self) -> Mapping[str, Any] | None:
        if not self.newest:
            raise RuntimeError("the JVM has ended")
        return {"sources": [{"latestOffset": self.newest}]}

    def poll(self) -> events.SourceLag:
        self.watch.poll()
        return self.told.of(events.SourceLag)[-1]


def test_before_anything_is_planned_there_is_no_lag() -> None:
    run = Run()
    run.watch.poll()
    assert run.told.events == []


def test_the_running_micro_batch_counts_as_lag() -> None:
    run = Run()
    run.planned = Ranges({A0: 10, A1: 0, B0: 5}, {A0: 30, A1: 7, B0: 5})
    run.committed = {A0: 10, B0: 5}
    lag = run.poll()
    assert lag.committed == {"a": 10, "b": 5}
    assert lag.ends == {"a": 37, "b": 5}
    assert lag.offsets == {"a": 27, "b": 0}
    run.committed = {A0: 30, A1: 7, B0: 5}
    assert run.poll().offsets == {"a": 0, "b": 0}


def test_sparks_newest_offsets_count_too() -> None:
    run = Run()
    run.committed = {A0: 10, A1: 10}
    run.newest = {"a": {"0": 15, "1": 9}}  # the second one is older than the position
    assert run.poll().offsets == {"a": 5}


def test_seconds_count_from_the_first_sight_of_what_is_not_committed() -> None:
    run = Run()
    run.committed, run.newest = {A0: 10}, {"a": {"0": 10}}
    assert run.poll().seconds == {"a": 0}
    for now, end in ((10.0, 20), (15.0, 30), (20.0, 30)):
        run.now, run.newest = now, {"a": {"0": end}}
        lag = run.poll()
    assert lag.seconds == {"a": 10}  # since 10.0
    run.committed = {A0: 20}
    assert run.poll().seconds == {"a": 5}  # since 15.0
    run.committed = {A0: 30}
    assert run.poll().seconds == {"a": 0}


def test_the_lag_after_a_position_is_that_of_its_topic_with_the_longest_one() -> None:
    run = Run()
    assert run.watch.lag_ms({A0: 10}) is None, "nothing is known yet"
    run.committed, run.newest = {A0: 10, B0: 5}, {"a": {"0": 10}, "b": {"0": 5}}
    run.poll()
    for now, a, b in ((10.0, 20, 5), (15.0, 30, 9)):
        run.now, run.newest = now, {"a": {"0": a}, "b": {"0": b}}
        run.poll()
    run.now = 20.0
    assert run.watch.lag_ms({A0: 10, B0: 9}) == 10_000
    assert run.watch.lag_ms({A0: 20, B0: 9}) == 5_000
    assert run.watch.lag_ms({A0: 30, B0: 5}) == 5_000
    assert run.watch.lag_ms({A0: 30, B0: 9}) == 0
    run.committed = {A0: 20, B0: 9}
    assert run.poll().seconds == {"a": 5, "b": 0}, "as the events have it"


def test_what_is_remembered_is_bounded_and_keeps_the_oldest() -> None:
    run = Run()
    run.committed = {A0: 1}
    for end in range(2, 5 * lag_watch._ENDS_MAX):
        run.now, run.newest = float(end), {"a": {"0": end}}
        lag = run.poll()
    assert lag.seconds == {"a": run.now - 2.0}
    assert len(run.watch._seen["a"]) <= lag_watch._ENDS_MAX


def test_the_last_values_are_those_of_the_end() -> None:
    run = Run()
    run.watch.start()
    run.committed = {A0: 3}
    run.newest = {"a": {"0": 3}}
    run.watch.stop()
    (lag,) = run.told.events
    assert lag == events.SourceLag({"a": 3}, {"a": 3}, {"a": 0.0})


def test_an_end_that_is_seen_meanwhile_makes_no_lag_negative() -> None:
    """The ledger's decoder rejects a negative lag."""
    run = Run()
    run.committed, run.newest = {A0: 0}, {"a": {"0": 9}}

    def polled() -> float:  # the watch's thread runs between `lag_ms`'s clock and its ends
        run.now, run.watch._clock = 1.0, lambda: run.now
        run.poll()
        return 0.0

    run.watch._clock = polled
    assert run.watch.lag_ms({A0: 0}) == 0
