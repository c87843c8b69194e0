"""The end of a producer id's epochs: another producer id, and nothing else that anybody sees."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from support.copies.pipeline_copy import Copy, Job
from support.copies.scenes import NUMBERS_TOPIC, Outcome, ProxiedKafka, run_copy
from support.doubles import At
from support.kafka.proxy_rules import HOST, PATIENCE_S, Do, read_frame, sized

from eos.deadline import Backoff, Deadline
from eos.errors import AttemptFailedError
from eos.kafka.api import CommittedOffset, Identity, TopicPartition
from eos.kafka.client import KafkaClient
from eos.observe import events
from eos.transaction.coordinator import Coordinator
from eos.transaction.protocol import EPOCH_LAST

_HEAD = struct.Struct(">hhih")
_ASKED = struct.Struct(">iqh")  # timeout, producer id, epoch
_ANSWER = struct.Struct(">ibihqh")  # correlation id, tags, throttle time, error, producer id, epoch
_INIT_PRODUCER_ID, _VERSION = 22, 5
_AT_ONCE = 400
_TIMEOUT_MS = 60_000


def spend_epochs(client: KafkaClient, port: int, transactional_id: str, epoch: int) -> Identity:
    """Takes over the id from whoever holds it, and spends its epochs up to this one."""
    owner = Coordinator(client, transactional_id, transactional_id, _TIMEOUT_MS)
    at = owner.fence(Deadline.after_ms(_TIMEOUT_MS))
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as broker:
        while at.epoch < epoch:
            spent = range(at.epoch, min(epoch, at.epoch + _AT_ONCE))
            inits = [_init(transactional_id, Identity(at.producer_id, each)) for each in spent]
            broker.sendall(b"".join(inits))
            for each in spent:
                at = _granted(broker)
                assert at.epoch == each + 1
    return at


def _init(transactional_id: str, identity: Identity) -> bytes:
    name, text = b"wear", transactional_id.encode()
    head = _HEAD.pack(_INIT_PRODUCER_ID, _VERSION, 0, len(name)) + name + b"\0"
    return sized(head + bytes([len(text) + 1]) + text + _ASKED.pack(_TIMEOUT_MS, *identity) + b"\0")


def _granted(broker: socket.socket) -> Identity:
    frame = read_frame(broker)
    assert frame is not None
    *_, error, producer_id, epoch = _ANSWER.unpack_from(frame)
    assert error == 0, error
    return Identity(producer_id, epoch)


ATTEMPTS = 33_000
RECORDS = 12  # of each partition: three micro-batches
ROTATES_IN = 1  # the number of the micro-batch that ends with another producer id
END_TXN = 3  # its EndTxn, counted from the start record's on


def soon() -> Deadline:
    return Deadline.after_ms(300_000)


@pytest.fixture
def worn(proxied: ProxiedKafka, job: Callable[..., Job]) -> Iterator[Callable[..., Job]]:
    """A job whose micro-batch 1 will have the last epoch, or with `epoch` left for its start."""
    clients: list[KafkaClient] = []

    def make(epoch: int = EPOCH_LAST - 3, **options: int) -> Job:
        made = job(records=RECORDS, **options)
        clients.append(made.client(".worn"))
        direct = proxied.broker.nodes[0].ports.client
        assert spend_epochs(clients[-1], direct, made.name, epoch).epoch == epoch
        return made

    yield make
    for client in clients:
        client.close()


@pytest.mark.nightly
def test_33_000_attempts_each_have_an_identity_of_their_own(client, name):
    """Empty ones, hours of a pipeline's life: once around the epochs, and on."""
    owner = Coordinator(client, name, name, 60_000, backoff=lambda: Backoff(first_ms=1))
    first = before = owner.fence(soon())
    rotated: list[Identity] = []
    for _ in range(ATTEMPTS):
        assert owner.begin(soon()) == before
        after = owner.abort(soon())
        if after.producer_id != before.producer_id:
            assert before.epoch == EPOCH_LAST
            assert after.epoch == 0
            rotated.append(after)
        else:
            assert after.epoch == before.epoch + 1
        before = after
    assert len(rotated) == 1
    assert rotated[0].producer_id != first.producer_id


@pytest.mark.long
def test_micro_batches_go_on_across_the_rotation_and_the_old_identity_is_over(
    proxied, worn, make_batch
):
    """Also for the very request that brought the new one, when it comes again."""
    small = worn()
    rule = proxied.proxy.rule("EndTxn", Do.NOTHING, client=small.name, nth=END_TXN)
    with Copy(small, At("ledger_record:after", rule.repeat, nth=3)) as copy:
        copy.start()
        used = []
        for _ in range(2):
            used.append(copy.coordinator.identity)
            copy.step()
        old, new = used[-1], copy.coordinator.identity
        assert [one.epoch for one in used] == [EPOCH_LAST - 1, EPOCH_LAST]
        assert new.producer_id != old.producer_id
        assert new.epoch == 0
        assert copy.step()  # with the ghost in it
        assert not copy.told.of(events.AttemptFailed)
        refused(copy.writers, small, old, make_batch)
        copy.stop()
    proxied.check(small)


def refused(client: KafkaClient, job: Job, old: Identity, make_batch: Callable[..., bytes]) -> None:
    """Whatever a zombie with this identity may send."""
    target = TopicPartition(job.target, 0)
    batch = {target: make_batch(old, 0, b"of a zombie")}
    offsets = {TopicPartition(NUMBERS_TOPIC, 0): CommittedOffset(1)}
    answers = [
        client.produce(job.name, batch, soon())[target],
        *client.commit_offsets(job.name, old, job.name, offsets, soon()).values(),
        client.init_producer_id(job.name, 60_000, old, soon()),
        client.end_txn(job.name, old, commit=True, deadline=soon()),
        client.end_txn(job.name, old, commit=False, deadline=soon()),
    ]
    assert all(answer.error in {47, 49, 90} for answer in answers), answers


@pytest.mark.long
@pytest.mark.parametrize(
    "do",
    [
        pytest.param(Do.LOSE_ANSWER, id="answer lost"),
        pytest.param(Do.HOLD_REQUEST, id="late", marks=pytest.mark.nightly),
    ],
)
def test_a_rotation_whose_answer_is_lost_gives_the_same_identity_again(proxied, worn, do):
    small = worn(request_timeout_ms=500)
    rule = proxied.proxy.rule("EndTxn", do, client=small.name, nth=END_TXN)
    ended = run_copy(small)
    assert rule.struck
    assert ended == Outcome([0, 1, 2], [], None)
    proxied.check(small)


@pytest.mark.long
def test_a_rotation_in_doubt_is_settled_by_the_ledger(proxied, worn, hurried):
    small, proxy = worn(request_timeout_ms=500), proxied.proxy
    proxy.rule("EndTxn", Do.LOSE_ANSWER, client=small.name, nth=END_TXN, times=10_000)
    init = proxy.rule("InitProducerId", Do.NOTHING, client=small.name, nth=2)
    ended = run_copy(small, hurried(At("end_txn_answered:after", proxy.clear_rules, nth=2)))
    assert init.struck
    assert ended == Outcome([0, 1, 2], [], None)
    proxied.check(small)


@pytest.mark.long
def test_an_init_of_the_last_epoch_that_is_repeated_is_no_takeover(proxied, worn, hurried):
    """With any other epoch the broker gives the same answer again. Here it has a new producer id
    and refuses the old one's owner."""
    small, proxy = worn(request_timeout_ms=500), proxied.proxy
    proxy.rule("EndTxn", Do.LOSE_ANSWER, client=small.name, nth=END_TXN, times=10_000)
    rule = proxy.rule("InitProducerId", Do.LOSE_ANSWER, client=small.name, nth=2)
    ended = run_copy(small, hurried(At("end_txn_answered:after", proxy.clear_rules, nth=2)))
    assert rule.struck
    assert ended == Outcome([0, 1, 2], [], None)
    proxied.check(small)


@pytest.mark.long
def test_an_abort_at_the_rotation_whose_answer_is_lost_is_repeated(proxied, worn):
    small = worn(request_timeout_ms=500)
    rule = proxied.proxy.rule("EndTxn", Do.LOSE_ANSWER, client=small.name, nth=END_TXN)

    def fail() -> None:
        raise AttemptFailedError("example", "on purpose")

    ended = run_copy(small, At("offsets:after", fail, nth=2))
    assert rule.struck
    assert ended == Outcome([0, 1, 2], ["on purpose"], None)
    proxied.check(small)


@pytest.mark.long
def test_a_start_when_no_epoch_is_left_takes_another_producer_id(proxied, worn):
    small = worn(EPOCH_LAST)
    rule = proxied.proxy.rule("InitProducerId", Do.LOSE_ANSWER, client=small.name)
    assert run_copy(small).error is None
    assert rule.struck
    proxied.check(small)


@pytest.mark.long
def test_the_logs_of_all_of_them_are_well_formed(behind_proxy):
    behind_proxy.check_logs("rotation-*.*")
