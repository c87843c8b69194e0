"""Records that the ledger gets beside micro-batches: refresh, stop; and the group beside it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from support.simulated_broker import Fault, Strike
from support.simulated_broker.kit import Tries
from support.simulated_broker.runs import (
    ALL,
    LEDGER,
    SIZE,
    SOURCE,
    TRIES,
    FewTries,
    Interrupt,
    World,
)
from support.simulated_broker.wire import stored

from eos.errors import FencedError, UnavailableError
from eos.faults import MOMENTS, POINTS
from eos.kafka.api import NO_IDENTITY, Api
from eos.ledger.record import TableState
from eos.observe import events
from eos.transaction import micro_batch as module

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
    (told,) = world.of_kind(events.Warned)
    assert told.message.startswith("the stop record could not be written: ")
    assert told.message.endswith("; it is retried")
    assert not world.of_kind(events.AttemptFailed), "observers count those of micro-batches"


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


def failed_refresh(world):
    """Nobody answers its Produce until the deadline; its abort comes through."""
    world.broker.arm(Fault(Api.PRODUCE, Strike.LOSE_REQUEST, times=TRIES))
    with pytest.raises(UnavailableError):
        world.batches.refresh(0)


@ALL
def test_what_follows_a_failed_refresh_knows_how_far_the_tables_are(where):
    """They are written behind a record, which tells how far they were before it."""
    world = World(*where)

    def follow(position, at):
        return replace(position, tables={"t": TableState("id", at)})

    world.run(0, follows=follow)
    known = world.batches.position.tables["t"].at
    failed_refresh(world)
    world.run(1, follows=follow)
    assert world.ledger_body()["tables"]["t"]["at"] == known
    world.check(2)


@ALL
def test_who_was_replaced_behind_a_failed_refresh_is_fenced_and_takes_up_nothing(where):
    older = World(*where)
    older.run(0)
    failed_refresh(older)
    before = older.batches.position
    newer = older.beside()
    newer.run(1)
    with pytest.raises(FencedError, match="its record is at offset"):
        older.run(1)
    assert older.batches.position is before
    assert not older.of_kind(events.MicroBatchSkipped)
    newer.run(2)
    newer.check(3)


@ALL
def test_a_commit_that_was_not_noted_is_ours_although_the_next_init_is_refused(where):
    """An interrupt right behind EndTxn's answer; then our own blank init comes once more."""
    world = World(*where)
    world.run(0)
    commit = world.coordinator.commit

    def interrupted(deadline):
        world.coordinator.commit = commit
        commit(deadline)
        raise KeyboardInterrupt

    world.coordinator.commit = interrupted
    with pytest.raises(KeyboardInterrupt):
        world.run(1)
    world.port.init_producer_id("id", world.coordinator.timeout_ms, NO_IDENTITY, Tries(1))
    world.run(1)
    world.run(2)
    world.check(3)
