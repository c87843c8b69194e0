"""A process that is interrupted where no crash point is, on a broker that loses what is said."""

from __future__ import annotations

from contextlib import suppress

import pytest
from support.simulated_broker import Fault, Strike
from support.simulated_broker.runs import ALL, TRIES, FewTries, World

from eos.kafka.api import Api
from eos.transaction import micro_batch as module
from eos.transaction.ownership_check import OwnershipCheck


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


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
