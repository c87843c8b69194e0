"""Records that the ledger gets beside micro-batches: refresh, stop; and the group beside it."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from support.micro_batch_world import (
    LEDGER,
    SIZE,
    SOURCE,
    TRIES,
    FewTries,
    Interrupt,
    World,
)
from support.simulated_ledger import stored

from eos.errors import (
    FencedError,
)
from eos.faults import MOMENTS, POINTS
from eos.observe import events
from eos.testing.broker import Fault, Strike
from eos.transaction import micro_batch as module
from eos.transaction.port import Api

POINTS_OF_A_NOTE = [
    f"{point}:{moment}" for point in POINTS[3:7] for moment in MOMENTS
]  # the ledger record to the end


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


@pytest.mark.parametrize("point", POINTS_OF_A_NOTE)
def test_a_note_that_is_interrupted_is_made_up_for_by_the_next_call(point):
    world = World()
    world.run(0)
    world.crash = Interrupt(f"refresh.{point}")
    with suppress(KeyboardInterrupt):
        world.batches.note("refresh")
    assert not world.crash.point, "the point was not reached"
    world.run(1)
    world.batches.note("stop", note={"why": "a test"})
    assert world.ledger_body()["kind"] == "stop"
    assert world.ledger_body()["note"] == {"why": "a test"}
    world.check(2)


@pytest.mark.parametrize("strike", [Strike.LOSE_ANSWER, Strike.LOSE_REQUEST])
def test_a_note_in_doubt_is_settled_by_the_ledger(strike):
    world = World()
    world.run(0)
    world.broker.arm(Fault(Api.END_TXN, strike, times=TRIES))
    world.batches.note("stop")
    kinds = [stored(entry)[0] for entry in world.broker.read_committed(LEDGER)]
    assert [json.loads(each.value)["kind"] for each in kinds] == ["start", "attempt", "stop"]


def test_the_clean_end_is_noted_by_another_attempt_although_the_run_is_stopping():
    """A replaced owner's init may abort it once: without the note the pipeline stays taken."""
    world = World()
    world.run(0)
    world.batches.is_stopping = True
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=TRIES))
    world.batches.note("stop")
    assert world.ledger_body()["kind"] == "stop"
    assert [event.will_redo for event in world.of_kind(events.AttemptFailed)] == [True]


def test_idle_is_refreshed_once_in_its_time_and_not_beside_a_micro_batch():
    world = World()
    world.run(0)
    assert not world.batches.refresh(60_000)
    with world.batches.lock:
        assert not world.batches.refresh(0)
    assert world.batches.refresh(0)
    assert world.ledger_body()["kind"] == "refresh"
    world.run(1)
    world.check(2)
    world.batches.is_stopping = True
    assert not world.batches.refresh(0)


def test_a_refresh_finds_out_that_another_copy_took_over():
    world = World()
    world.run(0)
    world.another()
    with pytest.raises(FencedError):
        world.batches.refresh(0)


@pytest.mark.parametrize("moved", [None, 3, 500])
def test_group_offsets_that_others_moved_are_told_and_put_right(moved):
    world = World()
    world.run(0)
    found = {} if moved is None else {SOURCE: moved}
    world.cluster.group_offsets = lambda *_: found
    world.run(1)
    (told,) = world.of_kind(events.Warned)
    value = "nothing" if moved is None else moved
    assert f"source-0 is at {value}, the ledger at {SIZE}" in told.message
    world.check(2)
