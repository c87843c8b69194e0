"""Who owns the transactional id: fencing, being fenced, and what only looks like it."""

import pytest
from support.simulated_broker import Fault, Phase, SimulatedPort, Strike
from support.simulated_broker.kit import (
    BOTH,
    LEDGER,
    TIMEOUT_MS,
    attempt,
    cluster,
    owner,
    record,
    some,
    values,
)

from eos.errors import AttemptFailedError, FencedError, KafkaRefusedError, UnavailableError
from eos.kafka.api import Api, Identity, TransactionProfile
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.ownership_check import own_timeout_ms
from eos.transaction.protocol import EPOCH_LAST, TransitionError
from eos.transaction.states import AwaitingLedger, Failed, FenceUnclear, Ready, Stopped


@BOTH
def test_fencing_ends_what_a_former_owner_left_open(profile):
    broker = cluster()
    former = owner(broker, profile)
    former.fence(some())
    attempt(former)
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    assert values(broker) == []
    assert broker.phase("id") is Phase.EMPTY
    attempt(coordinator, b"second")
    coordinator.commit(some())
    assert len(values(broker)) == 1


@BOTH
def test_an_owner_that_was_replaced_is_fenced_for_good(profile):
    broker = cluster()
    former, newer = owner(broker, profile), owner(broker, profile)
    former.fence(some())
    attempt(former)
    newer.fence(some())
    assert former.commit(some()) is Conclusion.IN_DOUBT
    with pytest.raises(FencedError):
        former.settle(some())
    assert former.is_disputed
    with pytest.raises(FencedError):
        former.begin(some())
    attempt(newer)
    assert newer.commit(some()) is Conclusion.COMMITTED
    assert len(values(broker)) == 1


@BOTH
def test_a_replaced_owner_learns_it_from_its_abort(profile):
    broker = cluster()
    former, newer = owner(broker, profile), owner(broker, profile)
    former.fence(some())
    former.begin(some())
    newer.fence(some())
    with pytest.raises(AttemptFailedError):
        record(former)
    assert isinstance(former.state, Failed)
    with pytest.raises(FencedError, match="PRODUCER_FENCED"):
        former.abort(some())


@BOTH
def test_our_own_timeout_is_no_fence_and_the_micro_batch_is_redone(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    before = attempt(coordinator)
    broker.advance(TIMEOUT_MS)
    assert coordinator.commit(some()) is Conclusion.IN_DOUBT
    coordinator.settle(some())
    assert values(broker) == []
    coordinator.settled()
    assert coordinator.identity > before
    attempt(coordinator)
    assert coordinator.commit(some()) is Conclusion.COMMITTED


def test_on_a_tv1_cluster_a_timeout_looks_like_a_fence_until_the_ledger_is_read():
    broker = cluster(server=TransactionProfile.TV1)
    coordinator = owner(broker, TransactionProfile.TV1)
    coordinator.fence(some())
    attempt(coordinator)
    broker.advance(TIMEOUT_MS)
    assert coordinator.commit(some()) is Conclusion.IN_DOUBT
    with pytest.raises(FencedError):
        coordinator.settle(some())
    assert coordinator.is_disputed
    coordinator.fence_again(coordinator.describe(some()).identity, some())
    assert isinstance(coordinator.state, AwaitingLedger)
    coordinator.settled()
    attempt(coordinator)
    assert coordinator.commit(some()) is Conclusion.COMMITTED


def test_a_second_chance_that_is_refused_leaves_it_disputed():
    broker = cluster(server=TransactionProfile.TV1)
    coordinator = owner(broker, TransactionProfile.TV1)
    coordinator.fence(some())
    attempt(coordinator)
    broker.advance(TIMEOUT_MS)
    with pytest.raises(FencedError):
        coordinator.abort(some())
    assert isinstance(coordinator.state, FenceUnclear)
    seen = coordinator.describe(some()).identity
    broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.ANSWER, code=90))
    with pytest.raises(FencedError):
        coordinator.fence_again(seen, some())
    assert isinstance(coordinator.state, FenceUnclear)
    coordinator.fence_again(seen, some())
    assert isinstance(coordinator.state, AwaitingLedger)


@BOTH
def test_a_second_chance_takes_nothing_from_who_was_granted_the_id_since(profile):
    broker = cluster()
    former, newer = owner(broker, profile), owner(broker, profile)
    former.fence(some())
    attempt(former)
    seen = former.describe(some()).identity
    newer.fence(some())
    assert former.commit(some()) is Conclusion.IN_DOUBT
    with pytest.raises(FencedError):
        former.settle(some())
    for _ in range(3):
        with pytest.raises(FencedError):
            former.fence_again(seen, some())
    attempt(newer)
    assert newer.commit(some()) is Conclusion.COMMITTED


@BOTH
def test_a_refused_fence_stops(profile):
    broker = cluster()
    coordinator = Coordinator(SimulatedPort(broker, profile), "id", "group", 10**9)
    with pytest.raises(KafkaRefusedError, match="INVALID_TRANSACTION_TIMEOUT") as refused:
        coordinator.fence(some())
    assert "transaction.max.timeout.ms" in refused.value.hint
    assert isinstance(coordinator.state, Stopped)
    with pytest.raises(KafkaRefusedError, match="INVALID_TRANSACTION_TIMEOUT"):
        coordinator.begin(some())


@BOTH
def test_an_unfinished_transaction_is_waited_for_and_named(profile):
    broker = cluster()
    former = owner(broker, profile)
    former.fence(some())
    attempt(former)
    broker.hold_markers()
    former.commit(some())
    newer = owner(broker, profile)
    with pytest.raises(UnavailableError, match="CONCURRENT_TRANSACTIONS"):
        newer.fence(some())
    broker.release_markers()
    newer.fence(some())
    assert len(values(broker)) == 1


@BOTH
def test_a_forgotten_transactional_id_is_not_taken_for_a_new_epoch(profile):
    """Whoever owned it while it was forgotten may have committed what we are about to redo."""
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    broker.expire("id")
    other = owner(broker, profile)
    other.fence(some())
    attempt(other)
    other.commit(some())
    broker.expire("id")
    coordinator.begin(some())
    with pytest.raises(AttemptFailedError, match="INVALID_PRODUCER_ID_MAPPING"):
        record(coordinator)
    with pytest.raises(UnavailableError, match="expired"):
        coordinator.abort(some())
    assert isinstance(coordinator.state, Stopped)


@BOTH
def test_a_forgotten_id_at_the_last_epoch_looks_like_its_rotation_until_the_ledger_is_read(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    identity = coordinator.fence(some())
    last = Identity(identity.producer_id, EPOCH_LAST)
    broker.transactions.by_name["id"].identity = last
    coordinator._state = Ready(last)
    broker.expire("id")
    other = owner(broker, profile)
    other.fence(some())
    attempt(other)
    other.commit(some())
    broker.expire("id")
    coordinator.begin(some())
    with pytest.raises(AttemptFailedError, match="INVALID_PRODUCER_ID_MAPPING"):
        record(coordinator)
    coordinator.abort(some())
    assert coordinator.is_awaiting_ledger
    with pytest.raises(TransitionError):
        coordinator.produce({LEDGER: b""}, some())


@pytest.mark.parametrize("asked", [2, 15, 1_000, 60_000])
def test_a_timeout_of_ones_own_is_never_that_which_was_asked_for(asked):
    """An owner of an older release asks for that."""
    drawn = {own_timeout_ms(asked) for _ in range(50)}
    assert all(max(1, asked - 1 - asked // 16) <= each <= max(1, asked - 1) for each in drawn)
    assert len(drawn) > 1 or asked < 32
