"""An attempt on the simulated broker: what belongs to it, and what fails it."""

import pytest
from support.simulated_broker import Fault, SimulatedPort, Strike
from support.simulated_broker.kit import (
    BOTH,
    SOURCE,
    TARGETS,
    Tries,
    attempt,
    cluster,
    owner,
    record,
    record_batch,
    some,
    values,
)

from eos.errors import AttemptFailedError, KafkaRefusedError
from eos.kafka.api import Api, CommittedOffset, ProduceAnswer, TopicPartition
from eos.transaction.coordinator import Conclusion
from eos.transaction.protocol import TransitionError
from eos.transaction.states import Failed, Open, Ready


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

    with pytest.raises(AttemptFailedError, match="missing from the response"):
        rest_of_the_attempt()
    assert isinstance(coordinator.state, Failed)


@BOTH
def test_a_failed_attempt_repeats_its_error_and_only_aborts(profile):
    broker = cluster()
    coordinator = owner(broker, profile)
    coordinator.fence(some())
    coordinator.begin(some())
    broker.produce = lambda *_: {}
    with pytest.raises(AttemptFailedError, match="missing from the response"):
        record(coordinator)
    for call in (
        lambda: coordinator.commit(some()),
        lambda: record(coordinator),
        lambda: coordinator.commit_offsets({SOURCE: CommittedOffset(1)}, some()),
    ):
        with pytest.raises(AttemptFailedError, match="missing from the response"):
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
