"""A run that is asked to stop in the middle of a micro-batch: it may commit, for so long."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from support.errors import raises
from support.simulated_broker import Phase
from support.simulated_broker.runs import FewTries, World

from eos.errors import AttemptFailedError
from eos.kafka.api import Identity
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends
from eos.observe import events
from eos.run import shutdown
from eos.transaction import micro_batch as module

WAIT_S_MAX = 240


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.delenv(shutdown.FINISH, raising=False)
    monkeypatch.setattr(module, "Deadline", FewTries)
    monkeypatch.setattr(shutdown.StopSignals, "listen", lambda _self: None)
    monkeypatch.setattr(shutdown.signal, "setitimer", lambda *_: None)
    made = World()
    made.run(0)
    return made


class Query:
    """Whose stop cancels the job, as Spark's does. It notes what a reader saw at that moment."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_cancelled = threading.Event()
        self.saw: queue.Queue[int] = queue.Queue()

    def stop(self) -> None:
        self.saw.put(len(self._world.visible()))
        self.is_cancelled.set()


@contextmanager
def under_way(world: World, query: Query, tasks: threading.Event) -> Iterator[list[Exception]]:
    """A micro-batch whose tasks run until `tasks` is set, or their job is cancelled."""
    has_begun, raised = threading.Event(), []
    writes = world.writes(1)

    def execute(identity: Identity, floors: Ends) -> Sequence[Receipt]:
        has_begun.set()
        assert tasks.wait(WAIT_S_MAX)
        if query.is_cancelled.is_set():
            raise AttemptFailedError("example", "the job was cancelled")
        return writes(identity, floors)

    def run() -> None:
        try:
            world.run(1, execute)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert has_begun.wait(WAIT_S_MAX)
        yield raised
    finally:
        tasks.set()
        thread.join(WAIT_S_MAX)


@contextmanager
def attached(world: World, query: Query) -> Iterator[shutdown.StopSignals]:
    """The signals of a process whose only pipeline runs this query."""
    with (
        closing(shutdown.StopSignals()) as signals,
        signals.stops[0].attached(query, world.batches),
    ):
        yield signals


def test_an_open_attempt_commits_before_the_query_is_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shutdown.FINISH, "600")
    query, tasks, is_told = Query(world), threading.Event(), threading.Event()

    def emit(event: events.Event) -> None:
        world.emitted.append(event)
        if isinstance(event, events.Stopping):
            is_told.set()

    monkeypatch.setattr(world.emitted, "emit", emit)
    with attached(world, query) as signals, under_way(world, query, tasks) as raised:
        signals._handle(signal.SIGTERM, None)
        assert is_told.wait(WAIT_S_MAX)
        assert world.of_kind(events.Stopping) == [events.Stopping(600)]
        assert query.saw.empty()
        tasks.set()
        assert query.saw.get(timeout=WAIT_S_MAX) == 2
    assert raised == []
    with raises("stop_requested"):
        world.run(2)
    world.check(2)


def test_one_that_takes_longer_is_stopped_and_aborted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(shutdown.FINISH, "0.01")
    query = Query(world)
    with attached(world, query) as signals, under_way(world, query, query.is_cancelled) as said:
        signals._handle(signal.SIGTERM, None)
        assert query.saw.get(timeout=WAIT_S_MAX) == 1
    assert [error.message for error in said] == ["the job was cancelled"]
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT
    world.check(1)


def test_where_nothing_is_under_way_the_query_is_stopped_at_once(world: World) -> None:
    query = Query(world)
    with closing(shutdown.StopSignals()) as signals:
        signals._handle(signal.SIGTERM, None)  # before there is a query
        with signals.stops[0].attached(query, world.batches):
            assert query.saw.get(timeout=WAIT_S_MAX) == 1
    assert world.of_kind(events.Stopping) == []
    assert world.batches.is_at_rest(within_s=0)


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shutdown.FINISH, text)
    with raises("finish_time_invalid") as refused:
        shutdown.Stopping(lambda: None)
    assert f"EOS_FINISH_S is '{text}'" in refused.value.message
    assert "seconds, from 0 to 86400" in refused.value.message
