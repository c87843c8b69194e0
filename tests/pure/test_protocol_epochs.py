"""Epochs of attempts, and the producer id that follows when they have run out."""

import pytest
from support.simulated_broker import Fault, SimulatedPort, Strike
from support.simulated_broker.kit import (
    BOTH,
    TARGETS,
    TIMEOUT_MS,
    attempt,
    cluster,
    owner,
    record_batch,
    some,
    values,
)

from eos.kafka.api import Api, Identity, TransactionProfile
from eos.transaction.coordinator import Conclusion
from eos.transaction.protocol import EPOCH_LAST
from eos.transaction.states import EpochUsed, Ready


def test_tv1_asks_for_the_next_epoch_when_the_next_attempt_begins():
    broker = cluster()
    coordinator = owner(broker, TransactionProfile.TV1)
    coordinator.fence(some())
    before = attempt(coordinator)
    coordinator.commit(some())
    assert isinstance(coordinator.state, EpochUsed)
    assert coordinator.begin(some()) == Identity(before.producer_id, before.epoch + 1)


def _at_the_last_epoch(broker, profile):
    """A fenced owner, two epochs before its producer id's last one."""
    coordinator = owner(broker, profile)
    identity = coordinator.fence(some())
    kept = broker.transactions.by_name["id"]
    kept.identity = Identity(identity.producer_id, EPOCH_LAST - 1)
    coordinator._state = Ready(kept.identity)
    return coordinator


@BOTH
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("strike", [None, Strike.LOSE_REQUEST, Strike.LOSE_ANSWER])
def test_at_the_end_of_the_epochs_a_new_producer_id_begins(profile, commits, strike):
    broker = cluster()
    coordinator = _at_the_last_epoch(broker, profile)
    seen, committed = [], 0
    for number in range(4):
        identity = attempt(coordinator, b"number" if commits else b"voided")
        seen.append(identity)
        if strike and number in {1, 2}:
            renews = profile is TransactionProfile.TV1 and number == 1
            broker.arm(Fault(Api.INIT_PRODUCER_ID if renews else Api.END_TXN, strike))
        if commits:
            assert coordinator.commit(some()) is Conclusion.COMMITTED
            committed += 1
        else:
            coordinator.abort(some())
    assert len(set(seen)) == 4
    assert [identity.epoch for identity in seen] == [EPOCH_LAST - 1, EPOCH_LAST, 0, 1]
    assert seen[1].producer_id < seen[2].producer_id == seen[3].producer_id
    assert len(values(broker)) == committed
    assert len(broker.faults.hit) == (2 if strike else 0)


@BOTH
def test_a_straggler_of_the_old_producer_id_is_refused(profile):
    broker = cluster()
    coordinator = _at_the_last_epoch(broker, profile)
    stale = [attempt(coordinator), None]
    coordinator.commit(some())
    stale[1] = attempt(coordinator)
    coordinator.commit(some())
    coordinator.begin(some())
    for identity in stale:
        late = {TARGETS[0]: record_batch(identity, 0, [b"straggler"])}
        answers = SimulatedPort(broker, profile).produce("id", late, some())
        assert answers[TARGETS[0]].error == 49


@BOTH
def test_a_timeout_at_the_last_epoch_is_survived(profile):
    broker = cluster()
    coordinator = _at_the_last_epoch(broker, profile)
    attempt(coordinator)
    coordinator.commit(some())
    identity = attempt(coordinator)
    assert identity.epoch == EPOCH_LAST
    broker.advance(TIMEOUT_MS)
    assert coordinator.commit(some()) is Conclusion.IN_DOUBT
    coordinator.settle(some())
    coordinator.settled()
    attempt(coordinator)
    assert coordinator.commit(some()) is Conclusion.COMMITTED
    assert len(values(broker)) == 2
