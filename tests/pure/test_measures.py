"""Figures of a run in its ledger records: the steps of the micro-batch before, and the lag."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from support.doubles import Work
from support.errors import raises
from support.simulated_broker.runs import SIZE, SOURCE, FewTries, World, step

from eos.errors import PromiseBrokenError
from eos.ledger.record import Ends, Position
from eos.transaction import micro_batch as module


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


def test_a_record_has_the_durations_of_the_commit_before_it() -> None:
    world = World()
    world.run(0)
    assert "previous_ms" not in world.ledger_body()["attempt"], "no micro-batch of this run"
    world.run(1)
    assert set(world.ledger_body()["attempt"]["previous_ms"]) == {"ledger", "offsets", "end"}
    world.start()
    world.run(2)
    assert "previous_ms" not in world.ledger_body()["attempt"], "another process: its own run"


def test_the_time_of_delta_tables_is_one_of_them() -> None:
    world = World()

    class Slow(Work):
        def follow(self, position: Position, _offset: int) -> Position:
            threading.Event().wait(0.02)
            return dataclasses.replace(position)

    world.batches.run(step(0), Slow(world.writes(0)))
    world.run(1)
    assert world.ledger_body()["attempt"]["previous_ms"]["tables"] >= 20
    world.run(2)
    assert "tables" not in world.ledger_body()["attempt"]["previous_ms"]


def test_the_lag_is_that_after_the_micro_batch() -> None:
    world, asked = World(), []

    def lag_ms(ends: Ends) -> int | None:
        asked.append(dict(ends))
        return 1_500 if len(asked) == 1 else None

    world.batches.measures.lag_ms = lag_ms
    world.run(0)
    assert world.ledger_body()["attempt"]["lag_ms"] == 1_500
    world.run(1)
    assert "lag_ms" not in world.ledger_body()["attempt"], "it was not known"
    assert asked == [{SOURCE: SIZE}, {SOURCE: 2 * SIZE}]


def test_a_record_that_could_not_be_read_back_is_not_sent() -> None:
    """Once committed, it would stop each startup."""
    world = World()
    world.batches.measures.lag_ms = lambda _: -4
    with raises("ledger_record_invalid", PromiseBrokenError) as caught:
        world.run(0)
    assert "attempt.lag_ms is -4" in caught.value.message
    world.batches.measures.lag_ms = lambda _: 4
    world.run(0)
    world.check(1)


def test_a_lag_that_fails_does_not_touch_the_micro_batch() -> None:
    world = World()

    def fails(_ends: Ends) -> int | None:
        raise RuntimeError("the JVM is gone")

    world.batches.measures.lag_ms = fails
    world.run(0)
    world.check(1)
    assert "lag_ms" not in world.ledger_body()["attempt"]
