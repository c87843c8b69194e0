"""The coordinator on the simulated broker: one claim a test, faults asserted to have struck."""

import pytest

from eos.errors import (
    AttemptFailedError,
    FencedError,
    KafkaRefusedError,
    UnavailableError,
)
from eos.testing.broker import Fault, Phase, SimulatedBroker, SimulatedPort, Strike
from eos.testing.broker.kit import Tries, record_batch
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.port import (
    Api,
    CommittedOffset,
    Identity,
    ProduceAnswer,
    Profile,
    TopicPartition,
)
from eos.transaction.protocol import EPOCH_LAST, TransitionError
from eos.transaction.states import (
    Disputed,
    Failed,
    Fenced,
    Judging,
    Open,
    Ready,
    Spent,
    Stopped,
)

BOTH = pytest.mark.parametrize("profile", Profile)
LEDGER, SOURCE = TopicPartition("ledger", 0), TopicPartition("source", 0)
TARGETS = [TopicPartition("target", number) for number in range(3)]
TIMEOUT_MS = 60_000


def cluster(server=Profile.TV2):
    return SimulatedBroker({"ledger": 1, "source": 2, "target": 3}, server)


def owner(broker, profile, reached=None):
    return Coordinator(SimulatedPort(broker, profile), "id", "group", TIMEOUT_MS, reached)


def some():
    return Tries(8)


def record(coordinator, value=b"ledger"):
    blob = record_batch(coordinator.identity, 0, [value])
    return coordinator.produce({LEDGER: blob}, some())


def attempt(coordinator, value=b"ledger", end=5):
    """Everything of an attempt except its end."""
    identity = coordinator.begin(some())
    record(coordinator, value)
    coordinator.commit_offsets({SOURCE: CommittedOffset(end)}, some())
    return identity


def values(broker, at=LEDGER):
    return [entry.blob[-len(b"ledger") - 1 : -1] for entry in broker.read_committed(at)]


@BOTH
def test_an_attempt_commits_ledger_and_offsets_together(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    attempt(coordinator)
    assert values(broker) == []
    assert broker.committed_offsets("group") == {}
    assert coordinator.commit(some()) is Conclusion.COMMITTED
    assert values(broker) == [b"ledger"]
    assert broker.committed_offsets("group") == {SOURCE: CommittedOffset(5)}


@BOTH
def test_each_attempt_has_an_identity_of_its_own(profile):
    coordinator = owner(cluster(), profile)
    coordinator.fence(some())
    seen = []
    for number in range(4):
        seen.append(attempt(coordinator))
        if number % 2:
            coordinator.abort(some())
        else:
            coordinator.commit(some())
    assert len(set(seen)) == 4


@BOTH
def test_an_aborted_attempt_that_sent_nothing_still_ends_its_epoch(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    before = coordinator.begin(some())
    after = coordinator.abort(some())
    assert after > before
    late = {TARGETS[0]: record_batch(before, 0, [b"straggler"])}
    assert SimulatedPort(broker, profile).produce("id", late, some()) == {
        TARGETS[0]: ProduceAnswer(47)
    }


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
    assert broker.faults.hit == ([] if api in only_tv1 and profile is Profile.TV2 else [fault])


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
    assert former.is_disputed == (profile is Profile.TV1)
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
    assert coordinator.settled(committed=False) is Conclusion.NOT_COMMITTED
    assert coordinator.identity > before
    attempt(coordinator)
    assert coordinator.commit(some()) is Conclusion.COMMITTED


def test_on_a_tv1_cluster_a_timeout_looks_like_a_fence_until_the_ledger_is_read():
    broker = cluster(server=Profile.TV1)
    coordinator = owner(broker, Profile.TV1)
    coordinator.fence(some())
    attempt(coordinator)
    broker.advance(TIMEOUT_MS)
    assert coordinator.commit(some()) is Conclusion.IN_DOUBT
    with pytest.raises(FencedError):
        coordinator.settle(some())
    assert coordinator.is_disputed
    coordinator.fence_again(some())
    assert isinstance(coordinator.state, Judging)
    coordinator.settled(committed=False)
    attempt(coordinator)
    assert coordinator.commit(some()) is Conclusion.COMMITTED


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
    coordinator.settled(committed=True)
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
    coordinator.settled(committed=False)
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
def test_only_the_offsets_that_failed_are_sent_again(profile):
    """All at once would be right too, but a partition that can't commit must not spoil others."""
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    coordinator.begin(some())
    record(coordinator)
    sent = []
    real = broker.commit_offsets

    def watched(*request):
        sent.append(set(request[-1]))
        return real(*request)

    broker.commit_offsets = watched
    gone = TopicPartition("gone", 0)
    with pytest.raises(KafkaRefusedError, match="gone-0"):
        coordinator.commit_offsets({SOURCE: CommittedOffset(1), gone: CommittedOffset(1)}, Tries(2))
    assert sent == [{SOURCE, gone}, {gone}]
    assert isinstance(coordinator.state, Failed)


@BOTH
@pytest.mark.parametrize("request_name", ["produce", "commit_offsets"])
def test_a_partition_left_out_of_an_answer_did_not_succeed(profile, request_name):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    coordinator.begin(some())
    real = getattr(broker, request_name)

    def silent_about_one(*request):
        answers = real(*request)
        answers.pop(next(iter(answers)))
        return answers

    setattr(broker, request_name, silent_about_one)

    def rest_of_the_attempt():
        record(coordinator)
        coordinator.commit_offsets({SOURCE: CommittedOffset(1)}, some())

    with pytest.raises(AttemptFailedError, match="missing from the answer"):
        rest_of_the_attempt()
    assert isinstance(coordinator.state, Failed)


@BOTH
def test_a_retried_record_keeps_its_bytes_and_is_written_once(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    identity = coordinator.begin(some())
    blobs = {at: record_batch(identity, 0, [b"to all"]) for at in TARGETS}
    broker.arm(Fault(Api.PRODUCE, Strike.CARRY_OUT_AND_ANSWER, code=7, times=2))
    assert coordinator.produce(blobs, some()) == dict.fromkeys(TARGETS, 0)
    assert len(broker.faults.hit) == 2
    assert [len(broker.read_uncommitted(at)) for at in TARGETS] == [1, 1, 1]


@BOTH
def test_a_failed_attempt_repeats_its_first_error_and_only_aborts(profile):
    coordinator = owner(cluster(), profile)
    coordinator.fence(some())
    coordinator.begin(some())
    record(coordinator)
    coordinator.fail(AttemptFailedError("receipts disagree"))
    coordinator.fail(AttemptFailedError("and something followed from it"))
    for call in (
        lambda: coordinator.commit(some()),
        lambda: record(coordinator),
        lambda: coordinator.commit_offsets({SOURCE: CommittedOffset(1)}, some()),
    ):
        with pytest.raises(AttemptFailedError, match="receipts disagree"):
            call()
    coordinator.abort(some())
    assert isinstance(coordinator.state, Ready)


@BOTH
def test_a_commit_without_a_ledger_record_is_a_mistake(profile):
    coordinator = owner(cluster(), profile)
    coordinator.fence(some())
    coordinator.begin(some())
    coordinator.commit_offsets({SOURCE: CommittedOffset(1)}, some())
    with pytest.raises(TransitionError):
        coordinator.commit(some())
    assert isinstance(coordinator.state, Open)
    with pytest.raises(ValueError, match="ledger record"):
        coordinator.produce({}, some())


@BOTH
def test_an_interrupt_between_request_and_answer_fails_the_attempt(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    coordinator.begin(some())

    def interrupted(*_):
        raise KeyboardInterrupt

    broker.produce = interrupted
    with pytest.raises(KeyboardInterrupt):
        record(coordinator)
    assert isinstance(coordinator.state, Failed)


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
    coordinator.settled(committed=False)


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
def test_an_abort_whose_deadline_passed_can_be_repeated(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    before = attempt(coordinator)
    broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=99))
    with pytest.raises(UnavailableError, match="no answer"):
        coordinator.abort(Tries(3))
    broker.faults.disarm()
    assert coordinator.abort(some()) > before
    assert coordinator.abort(some()) == coordinator.identity


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
            renews = profile is Profile.TV1 and number == 1
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
    coordinator.settled(committed=False)
    attempt(coordinator)
    assert coordinator.commit(some()) is Conclusion.COMMITTED
    assert len(values(broker)) == 2


def test_tv1_asks_for_the_next_epoch_when_the_next_attempt_begins():
    broker = cluster()
    coordinator = owner(broker, Profile.TV1)
    coordinator.fence(some())
    before = attempt(coordinator)
    coordinator.commit(some())
    assert isinstance(coordinator.state, Spent)
    assert coordinator.begin(some()) == Identity(before.producer_id, before.epoch + 1)


def test_the_second_chance_on_tv1_can_still_be_refused():
    broker = cluster(server=Profile.TV1)
    coordinator = owner(broker, Profile.TV1)
    coordinator.fence(some())
    attempt(coordinator)
    broker.advance(TIMEOUT_MS)
    with pytest.raises(FencedError):
        coordinator.abort(some())
    assert isinstance(coordinator.state, Disputed)
    broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.ANSWER, code=90))
    with pytest.raises(FencedError):
        coordinator.fence_again(some())
    assert isinstance(coordinator.state, Fenced)
