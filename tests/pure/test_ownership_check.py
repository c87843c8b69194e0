"""On a TV1 cluster: refused as fenced by our own doing, or because another copy took over.

Each begins with a micro-batch that is committed, and ends with a look at what is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.doubles import Execute
from support.errors import raises
from support.simulated_broker import Fault, Phase, Strike
from support.simulated_broker.kit import Tries, record_batch
from support.simulated_broker.runs import LEDGER, TARGET, TIMEOUT_MS, TRIES, FewTries, World

from eos.errors import AttemptFailedError, FencedError, PromiseBrokenError
from eos.kafka.api import NO_IDENTITY, Api, Identity, TransactionProfile
from eos.ledger.ledger import Ledger
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends, encoded, stamped
from eos.observe import events
from eos.startup.acquire import still_ours
from eos.transaction import micro_batch as module
from eos.transaction.coordinator import Conclusion
from eos.transaction.protocol import EPOCH_LAST


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


@pytest.fixture
def world() -> World:
    made = World(TransactionProfile.TV1, TransactionProfile.TV1)
    made.run(0)
    return made


def reasons(world: World) -> list[str]:
    return [event.reason for event in world.of_kind(events.AttemptFailed)]


def at_first(world: World, execute: Execute) -> Execute:
    """In the first attempt, that is; then all is well."""
    left = [execute]

    def job(identity: Identity, floors: Ends) -> Sequence[Receipt]:
        return (left.pop() if left else world.writes(1))(identity, floors)

    return job


@pytest.mark.parametrize(
    "point", ["all_acked:before", "ledger_record:after", "offsets:after", "end_txn_sent:before"]
)
def test_a_transaction_that_outlived_its_timeout_is_redone(world: World, point: str) -> None:
    reached, left = world.reached, [TIMEOUT_MS]

    def late(at: str) -> None:
        if at == point and left:
            world.broker.advance(left.pop())
        reached(at)

    world.reached = late
    world.run(1)
    assert not left
    assert len(reasons(world)) == 1
    world.run(2)
    world.check(3)


def test_a_commit_that_never_arrived_is_ended_by_our_own_init_and_redone(world: World) -> None:
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=TRIES))
    world.run(1)
    assert reasons(world) == [
        "Kafka did not confirm the commit, and the ledger has no record of it"
    ]
    world.check(2)


def test_a_double_of_add_partitions_after_the_end_costs_nothing(world: World) -> None:
    world.broker.arm(Fault(Api.ADD_PARTITIONS, Strike.REPEAT_LATER))
    world.run(1)
    world.broker.deliver_late()
    assert world.broker.phase("id") is Phase.ONGOING
    world.run(2)
    assert reasons(world) == []
    world.check(3)


def test_one_that_was_replaced_ends_our_transaction_once_and_is_fenced(world: World) -> None:
    former = world.batches
    world.start()

    def beside(identity, floors):
        receipts = world.writes(1)(identity, floors)
        with pytest.raises(FencedError):
            former.require_owner()  # its init ends our transaction before it is refused
        return receipts

    world.run(1, at_first(world, beside))
    assert len(reasons(world)) == 1
    with raises("newer_instance_running"):
        former.note("refresh")
    world.check(2)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_takeover_is_final_although_its_owner_has_not_written_yet(
    world: World, is_open: bool
) -> None:
    def taken(identity, floors):
        receipts = world.writes(1)(identity, floors)
        world.another()
        return receipts

    if is_open:
        with raises("newer_instance_running"):
            world.run(1, taken)
    else:
        other = world.another()
        with raises("newer_instance_running"):
            world.run(1)
        other.begin(Tries(9))
        other.abort(Tries(9))
    world.check(1)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_failed_check_of_a_startup_is_a_takeover_only_if_there_was_one(
    world: World, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Ledger.append

    def refused_next(*asked: Any) -> int:
        offset = append(*asked)
        if is_replaced:
            world.another()
        else:
            world.broker.advance(TIMEOUT_MS)
        return offset

    monkeypatch.setattr(Ledger, "append", refused_next)
    kind = FencedError if is_replaced else PromiseBrokenError
    with pytest.raises(kind), still_ours(world.coordinator, world.ledger):
        raise PromiseBrokenError("example", "the group is ahead")
    assert world.coordinator.is_disputed


def test_who_is_taken_over_in_the_middle_gives_way_to_the_newer_owner(world: World) -> None:
    """A blank init that finds a transaction open ends it, and is asked to come again. Until it
    does, the coordinator knows of no newer owner, and whoever comes first is not the last."""

    def halfway(identity, floors):
        receipts = world.writes(1)(identity, floors)
        answer = world.port.init_producer_id("id", TIMEOUT_MS, NO_IDENTITY, Tries(1))
        assert answer.error == 51
        return receipts

    world.run(1, at_first(world, halfway))
    world.check(2)
    other = world.another()
    with pytest.raises(FencedError):
        world.run(2)
    assert other.begin(Tries(9)).epoch > world.coordinator.identity.epoch
    world.check(2)


def test_a_newer_owners_record_is_final_whatever_the_coordinator_says(world: World) -> None:
    other = world.another()
    identity = other.begin(Tries(9))
    body = encoded(
        "p", {"deployment": "d", "host": "there", "process": 7}, "start", world.batches.position
    )
    other.produce({LEDGER: stamped(body, identity)}, Tries(9))
    other.commit(Tries(9))
    # A producer that is not ours, under the same epoch: the broker's last word is then an abort.
    world.port.add_partitions("id", identity, frozenset({TARGET}), Tries(1))
    world.port.end_txn("id", identity, False, Tries(1))
    assert world.broker.phase("id") is Phase.COMPLETE_ABORT
    with pytest.raises(FencedError, match=r"ledger \(host there, process 7\)"):
        world.run(1)
    other.begin(Tries(9))  # it was not fenced
    other.abort(Tries(9))


def test_a_ledger_that_lost_its_newest_records_is_no_takeover(world: World) -> None:
    """Refused by its own doing, the pipeline looks into a ledger that ends with an older record."""
    former = world.broker.logs[LEDGER].offset_end
    world.run(1)
    committed = world.ledger_body()["producer_id"], world.ledger_body()["epoch"]

    def late(identity: Identity, floors: Ends) -> Sequence[Receipt]:
        receipts = world.writes(2)(identity, floors)
        world.broker.advance(TIMEOUT_MS)
        world.broker.logs[LEDGER].cut(former)
        return receipts

    with pytest.raises(PromiseBrokenError) as stop:
        world.run(2, late)
    assert stop.value.code == "ledger_cut"
    assert "ends with the record at offset 2, but this process wrote later ones" in str(stop.value)
    assert world.batches.ownership.last == Identity(*committed)


def test_a_dispute_that_is_not_concluded_is_by_the_next_call(world: World) -> None:
    """Committed, its answer lost; then reopened by a double; and nobody answers the blank init."""
    world.broker.arm(Fault(Api.ADD_PARTITIONS, Strike.REPEAT_LATER))
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_ANSWER, times=TRIES))
    settle = world.coordinator.settle

    def reopened(deadline):
        world.broker.deliver_late()
        nth = 3  # the init that ends what was reopened, its repetition, the blank one
        lost = Fault(Api.INIT_PRODUCER_ID, Strike.LOSE_REQUEST, nth, times=TRIES)
        world.broker.arm(lost)
        world.coordinator.settle = settle
        return settle(deadline)

    world.coordinator.settle = reopened
    with raises("no_response_by_deadline"):
        world.run(1)
    assert world.coordinator.is_disputed
    assert reasons(world) == []  # nothing was aborted: it may be committed
    world.run(1)
    assert len(world.of_kind(events.MicroBatchSkipped)) == 1
    world.run(2)
    world.check(3)


def test_notes_and_refreshes_are_disputed_too(world: World) -> None:
    world.broker.arm(Fault(Api.ADD_PARTITIONS, Strike.REPEAT_LATER))
    world.run(1)
    world.broker.deliver_late()
    assert world.batches.refresh(0)
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=TRIES))
    world.batches.note("stop")
    assert world.ledger_body()["kind"] == "stop"
    world.check(2)


def test_a_refusal_behind_our_look_is_looked_into_again(world: World) -> None:
    world.broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.ANSWER, code=90, times=3))

    def late(identity, floors):
        world.writes(1)(identity, floors)
        world.broker.advance(TIMEOUT_MS)
        raise AttemptFailedError("example", "late")

    world.run(1, at_first(world, late))
    assert len(reasons(world)) == 1
    world.check(2)


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("has_written", [False, True])
def test_a_newer_owner_that_comes_between_our_look_and_our_init_goes_on(
    world: World, has_written: bool, is_repeated: bool
) -> None:
    """Neither our init nor its repetition takes the id from it, or nobody would be left."""
    again, others = world.coordinator.fence_again, []

    def overtaken(seen, deadline):
        if is_repeated:
            world.broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.LOSE_REQUEST))
        others.append(world.another())
        if has_written:
            record = encoded(
                "p",
                {"deployment": "d", "host": "there", "process": 1},
                "start",
                world.batches.position,
            )
            others[0].produce({LEDGER: stamped(record, others[0].begin(Tries(9)))}, Tries(9))
            others[0].commit(Tries(9))
        world.coordinator.fence_again = again
        return again(seen, deadline)

    world.coordinator.fence_again = overtaken
    world.broker.arm(Fault(Api.END_TXN, Strike.LOSE_REQUEST, times=TRIES))
    with pytest.raises(FencedError, match="ledger \\(host there" if has_written else "at epoch"):
        world.run(1)
    owned = others[0].begin(Tries(9))
    others[0].produce({LEDGER: record_batch(owned, 0, [b"{}"])}, Tries(9))
    assert others[0].commit(Tries(9)) is Conclusion.COMMITTED
    assert world.visible() == [0]


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("profile", TransactionProfile)
def test_another_producer_id_is_a_rotation_only_if_nobody_else_was_there(
    profile: TransactionProfile, is_replaced: bool
) -> None:
    """The broker forgot the id while ours was at its last epoch, whoever owned it since."""
    world = World(profile, profile)
    world.run(0)
    last = Identity(world.coordinator.identity.producer_id, EPOCH_LAST)
    world.coordinator._state = type(world.coordinator.state)(last)
    world.broker.transactions.by_name["id"].identity = last
    older = world.batches
    if is_replaced:
        world.start()
        world.run(1)
    world.broker.expire("id")
    if is_replaced:
        with pytest.raises(FencedError, match="its record is at offset"):
            older.require_owner()
        with pytest.raises(FencedError, match="its record is at offset"):
            older.note("refresh")
    else:
        older.require_owner()
        world.run(1)
    world.check(2)
