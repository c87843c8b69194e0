"""A process that is interrupted where no crash point is, on a broker that loses what is said."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.simulated_broker import Fault, Strike
from support.simulated_broker.runs import ALL, TRIES, FewTries, World

from eos.errors import AttemptFailedError
from eos.kafka.api import Api
from eos.transaction import micro_batch as module
from eos.transaction.coordinator import Coordinator
from eos.transaction.ownership_check import OwnershipCheck


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


def test_attempts_that_an_interrupted_commit_has_listed_are_not_listed_again(monkeypatch):
    world, commit = World(), Coordinator.commit

    def interrupted(*asked):
        commit(*asked)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Coordinator, "commit", interrupted)
        world.run(0, world.writes(0, AttemptFailedError("example", "once")))
    assert [each["reason"] for each in world.ledger_body()["failed"]] == ["once"]
    world.batches.note("stop")
    assert "failed" not in world.ledger_body()


@ALL
def test_a_commit_that_was_found_in_the_ledger_outlives_an_interrupt(where, monkeypatch):
    world = World(*where)
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_ANSWER, times=TRIES))
    settle = OwnershipCheck.settle

    def interrupted(*asked):
        settle(*asked)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(OwnershipCheck, "settle", interrupted)
        world.run(0)
    world.batches.note("stop")
    world.run(1)
    world.check(2)
