"""The end of a run: what it has committed stays, whether its clean end can be noted or not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.errors import raises
from support.simulated_broker import Fault, Strike
from support.simulated_broker.kit import Tries
from support.simulated_broker.log import PartitionLog
from support.simulated_broker.runs import LEDGER, TRIES, FewTries, World

from eos.errors import FencedError, PromiseBrokenError
from eos.kafka.api import Api
from eos.ledger.record import nested
from eos.observe import events
from eos.transaction import micro_batch as module
from eos.transaction.clean_end import note_clean_end


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


@pytest.fixture
def world() -> World:
    made = World()
    made.run(0)
    return made


def test_it_is_the_last_record_and_no_attempt_follows(world):
    note_clean_end(world.batches, world.emitted, is_at_rest=True)
    assert world.ledger_body()["kind"] == "stop"
    assert world.batches.is_stopping
    assert not world.of_kind(events.Warned)
    world.check(1)


@pytest.mark.parametrize(("is_at_rest", "left"), [(True, "0001-7-0"), (False, "")])
def test_it_names_its_checkpoint_only_if_nobody_writes_there_any_more(world, is_at_rest, left):
    world.batches.position = replace(world.batches.position, checkpoint="0001-7-0")
    world.run(1)
    assert world.ledger_body()["checkpoint"] == "0001-7-0"
    note_clean_end(world.batches, world.emitted, is_at_rest=is_at_rest)
    assert world.ledger_body().get("checkpoint", "") == left
    assert world.ledger_body()["ends"] == nested(world.batches.position.ends)
    world.check(2)


def test_an_end_that_can_not_be_noted_is_a_warning(world):
    world.broker.arm(Fault(Api.PRODUCE, Strike.LOSE_REQUEST, times=99 * TRIES))
    note_clean_end(world.batches, world.emitted, is_at_rest=True)
    *_, told = world.of_kind(events.Warned)
    assert told.message.startswith("the ledger record of the clean stop could not be written: ")
    assert world.ledger_body()["kind"] == "attempt"


def test_who_was_replaced_says_so_at_its_end(world):
    """With exit 0 a supervisor might start it again, and it would fence whoever replaced it."""
    world.another()
    with pytest.raises(FencedError):
        note_clean_end(world.batches, world.emitted, is_at_rest=True)
    assert not world.of_kind(events.Warned)


def test_a_ledger_that_lost_its_records_is_no_clean_end(world):
    """An unclean election at the worst moment. The next start could not tell, and exit 0 hid it."""
    world.broker.logs[LEDGER] = PartitionLog()
    with raises("ledger_cut", PromiseBrokenError) as caught:
        note_clean_end(world.batches, world.emitted, is_at_rest=True)
    assert "ends at offset 0, but it ended at 4 before" in caught.value.message
    assert not world.broker.logs[LEDGER].read_committed()
    world.start()
    world.broker.logs[LEDGER] = PartitionLog()
    with raises("ledger_cut", PromiseBrokenError):
        world.run(0)


def test_a_record_that_did_not_follow_the_ledgers_end_does_not_move_it(world):
    """Otherwise the next record, which follows that one, would hide the loss."""
    ledger = world.batches.ledger
    assert world.broker.logs[LEDGER].offset_end == 4
    for offset in (0, 2):
        with raises("ledger_cut", PromiseBrokenError) as caught:
            ledger.require_follows(offset, Tries(TRIES))
        assert f"ends at offset {offset}, but it ended at 4 before" in caught.value.message
