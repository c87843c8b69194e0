"""What an attempt that failed leaves at the broker and in the ledger."""

from __future__ import annotations

import pytest
from support.simulated_broker import Phase
from support.simulated_broker.runs import ALL, FewTries, World

from eos.errors import AttemptFailedError, FencedError
from eos.observe import events
from eos.transaction import micro_batch


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batch, "Deadline", FewTries)


@ALL
def test_a_fenced_attempt_is_left_to_the_new_owner(where):
    """An abort could end a transaction of the new owner, so nothing is sent."""
    world = World(*where)
    error = FencedError("example", "another instance took over")
    with pytest.raises(FencedError) as caught:
        world.run(0, world.writes(0, error))
    assert caught.value is error
    assert world.broker.phase("id") is Phase.ONGOING
    assert not world.of_kind(events.AttemptFailed)


@ALL
def test_a_failed_attempt_is_listed_by_one_record(where):
    world = World(*where)
    world.run(0, world.writes(0, AttemptFailedError("example", "once")))
    assert [each["reason"] for each in world.ledger_body()["failed"]] == ["once"]
    world.run(1)
    assert "failed" not in world.ledger_body()
