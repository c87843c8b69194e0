"""Requests and answers that get lost: one claim a test, faults asserted to have struck."""

import pytest
from support.errors import raises
from support.simulated_broker import Fault, Phase, Strike
from support.simulated_broker.kit import BOTH, Tries, attempt, cluster, owner, some, values

from eos.errors import UnavailableError
from eos.kafka.api import Api, TransactionProfile
from eos.transaction.coordinator import Conclusion
from eos.transaction.protocol import TransitionError


@BOTH
@pytest.mark.parametrize("strike", [Strike.LOSE_REQUEST, Strike.LOSE_ANSWER])
@pytest.mark.parametrize("api", [api for api in Api if api is not Api.FIND_COORDINATOR])
def test_a_lost_request_or_answer_is_repeated_and_changes_nothing(profile, api, strike):
    broker = cluster()
    fault = Fault(api, strike)
    broker.arm(fault)
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    attempt(coordinator)
    assert coordinator.commit(some()) is Conclusion.COMMITTED
    assert values(broker) == [b"ledger"]
    coordinator.begin(some())
    only_tv1 = {Api.ADD_PARTITIONS, Api.ADD_OFFSETS}
    assert broker.faults.hit == (
        [] if api in only_tv1 and profile is TransactionProfile.TV2 else [fault]
    )


@BOTH
@pytest.mark.parametrize("strike", [Strike.LOSE_REQUEST, Strike.LOSE_ANSWER])
def test_a_lost_abort_is_repeated(profile, strike):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    before = attempt(coordinator)
    fault = Fault(Api.END_TXN, strike)
    broker.arm(fault)
    assert coordinator.abort(some()) > before
    assert (broker.faults.hit, values(broker)) == ([fault], [])


@BOTH
def test_an_abort_whose_deadline_passed_can_be_repeated(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    before = attempt(coordinator)
    broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=99))
    with raises("no_response_by_deadline", UnavailableError):
        coordinator.abort(Tries(3))
    broker.faults.disarm()
    assert coordinator.abort(some()) > before
    assert coordinator.abort(some()) == coordinator.identity


@BOTH
def test_a_lost_commit_is_in_doubt_and_the_broker_may_have_it(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    attempt(coordinator)
    broker.arm(Fault(Api.END_TXN, Strike.LOSE_ANSWER, times=99))
    assert coordinator.commit(Tries(3)) is Conclusion.IN_DOUBT
    assert coordinator.is_in_doubt
    with pytest.raises(TransitionError):
        coordinator.abort(some())
    with pytest.raises(TransitionError):
        coordinator.begin(some())
    coordinator.settle(some())
    assert values(broker) == [b"ledger"]
    coordinator.settled()
    assert not coordinator.is_in_doubt
    attempt(coordinator)


@BOTH
def test_a_commit_that_arrives_after_it_was_settled_changes_nothing(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    attempt(coordinator, b"first!")
    broker.arm(Fault(Api.END_TXN, Strike.DELAY_REQUEST, times=99))
    assert coordinator.commit(Tries(3)) is Conclusion.IN_DOUBT
    broker.faults.disarm()
    coordinator.settle(some())
    assert values(broker) == []
    coordinator.settled()
    attempt(coordinator, b"second")
    assert broker.deliver_late() > 0
    assert values(broker) == []
    assert coordinator.commit(some()) is Conclusion.COMMITTED
    assert values(broker) == [b"second"]


@BOTH
def test_the_crash_points_stand_around_the_bytes_of_the_commit(profile):
    broker = cluster()
    seen = []
    coordinator = owner(broker, profile, lambda point: seen.append((point, broker.phase("id"))))
    coordinator.fence(some())
    attempt(coordinator)
    coordinator.commit(some())
    assert seen == [
        ("end_txn_sent:before", Phase.ONGOING),
        ("end_txn_sent:after", Phase.ONGOING),
        ("end_txn_answered:before", Phase.COMPLETE_COMMIT),
    ]
    attempt(coordinator)
    coordinator.abort(some())
    assert len(seen) == 3


@BOTH
def test_an_interrupt_while_committing_leaves_the_attempt_in_doubt(profile):
    def die(point):
        if point == "end_txn_sent:after":
            raise KeyboardInterrupt

    broker = cluster()
    coordinator = owner(broker, profile, die)
    coordinator.fence(some())
    attempt(coordinator)
    with pytest.raises(KeyboardInterrupt):
        coordinator.commit(some())
    assert coordinator.is_in_doubt
    with pytest.raises(TransitionError):
        coordinator.abort(some())
    coordinator.settle(some())
    assert values(broker) == []
    coordinator.settled()
