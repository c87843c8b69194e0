"""A query that is started again inside its process keeps coordinator and identity.

The call before raised at any step, and nobody knows what became of it. The new query may be another
one for Spark, and may plan the same records or others. Each record is written once all the same;
and who was replaced meanwhile stays replaced, whatever it is asked to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from support.doubles import Work
from support.simulated_broker import Fault, Strike
from support.simulated_broker.kit import Tries, record_batch
from support.simulated_broker.runs import LEDGER, SOURCE, TARGET, FewTries, Interrupt, World

from eos.deadline import Deadline
from eos.errors import AttemptFailedError, FencedError, PromiseBrokenError, UnavailableError
from eos.faults import MOMENTS, POINTS
from eos.kafka.api import NO_IDENTITY, Api, Identity
from eos.ledger.ranges import PlannedBatch
from eos.ledger.receipt import Receipt
from eos.ledger.record import Ends
from eos.observe import events
from eos.transaction import micro_batch as module

STEPS = [f"{point}:{moment}" for point in POINTS if point != "first_produce" for moment in MOMENTS]
ENDS_IN = [KeyboardInterrupt, AttemptFailedError]  # nobody catches it; worth another attempt


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Deadline", FewTries)


class Copied(World):
    """Copies offsets: a record each, and those below the floor are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.inits: list[Identity] = []  # of this process, after its fence
        init = self.port.init_producer_id

        def noted(name: str, timeout_ms: int, identity: Identity, deadline: Deadline):
            self.inits.append(identity)
            return init(name, timeout_ms, identity, deadline)

        self.port.init_producer_id = noted

    def plan(self, query: str, number: int, start: int, end: int) -> None:
        def execute(identity: Identity, floors: Ends) -> Sequence[Receipt]:
            assert identity not in self.identities, "one epoch, one attempt"
            self.identities.append(identity)
            offsets = range(floors.get(SOURCE, start), end)
            blob = record_batch(identity, 0, [b"%d" % offset for offset in offsets])
            answer = self.port.produce("id", {TARGET: blob}, Tries(1))[TARGET]
            if answer.error:
                raise AttemptFailedError("example", f"answered {answer.error}")
            last = answer.offset + len(offsets) - 1
            return [Receipt("target", 0, len(offsets), answer.offset, last, len(blob), 7)]

        self.batches.run(PlannedBatch(query, number, {SOURCE: start}, {SOURCE: end}), Work(execute))

    def ended_at(self, point: str, kind: type[BaseException]) -> None:
        """The query before: a micro-batch that committed, and one that did not return."""
        self.plan("q", 0, 0, 10)
        self.crash = Interrupt(point, kind)
        with suppress(kind):
            self.plan("q", 1, 10, 20)
            self.plan("q", 2, 20, 25)  # `commit_log:after` is reached by the call after
        assert not self.crash.point, "the point was not reached"

    @property
    def end(self) -> int:
        """How far the ledger has come."""
        return self.ledger_body()["ends"]["source"]["0"]


# --- goes on ------------------------------------------------------------------------------------

PLANS = {
    "the same query": ("q", 1),
    "another query": ("r", 0),
    "another query, the same number": ("r", 1),
}


@pytest.mark.parametrize("kind", ENDS_IN)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("end", [20, 30])
@pytest.mark.parametrize("point", STEPS)
def test_the_new_query_goes_on_once_from_what_is_committed(point, end, plan, kind):
    query, number = PLANS[plan]
    world = Copied()
    world.ended_at(point, kind)
    if world.end == 25:  # an error that was worth another attempt
        world.plan(query, number + 2, 25, 50)
    else:
        world.plan(query, number, 10, end)
        world.plan(query, number + 1, end, 50)
    assert world.visible() == list(range(50))
    assert world.end == 50
    assert NO_IDENTITY not in world.inits, "it fenced itself"
    assert world.identities == sorted(world.identities)


@pytest.mark.parametrize("point", STEPS)
def test_a_new_query_that_plans_less_than_is_committed_stops_and_writes_nothing(point):
    world = Copied()
    world.ended_at(point, KeyboardInterrupt)
    before = world.visible()
    is_committed = len(before) == 20
    if is_committed:
        with pytest.raises(PromiseBrokenError):
            world.plan("r", 0, 10, 15)
    else:
        world.plan("r", 0, 10, 15)
        before = list(range(15))
    assert world.visible() == before
    world.plan("r", 1, len(before), 50)
    assert world.visible() == list(range(50))


@pytest.mark.parametrize("strike", [Strike.LOSE_ANSWER, Strike.LOSE_REQUEST])
def test_a_commit_that_nobody_could_conclude_is_concluded_by_the_new_query(strike):
    world = Copied()
    world.plan("q", 0, 0, 10)
    world.broker.arm(Fault(Api.END_TXN, strike, times=99))
    world.broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.LOSE_REQUEST, times=99))
    with pytest.raises(UnavailableError):
        world.plan("q", 1, 10, 20)
    assert world.coordinator.is_in_doubt
    with pytest.raises(UnavailableError):  # nor by this one
        world.plan("r", 0, 10, 20)
    world.broker.faults.disarm()
    world.plan("r", 0, 10, 30)
    assert world.visible() == list(range(30))
    assert NO_IDENTITY not in world.inits
    assert len(world.of_kind(events.MicroBatchSkipped)) == 0


# --- replaced meanwhile -------------------------------------------------------------------------


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("point", STEPS)
def test_who_was_replaced_meanwhile_does_not_come_back(point, plan):
    query, number = PLANS[plan]
    world = Copied()
    world.ended_at(point, KeyboardInterrupt)
    newer = world.another()
    owned = newer.identity
    before = world.visible()
    for _ in range(3):
        with pytest.raises(FencedError):
            world.plan(query, number, 10, 30)
        with pytest.raises(FencedError):
            world.batches.note("refresh")
    assert world.visible() == before
    assert NO_IDENTITY not in world.inits
    newer.begin(Tries(9))
    newer.produce({LEDGER: record_batch(owned, 0, [b"{}"])}, Tries(9))
    newer.commit(Tries(9))
    assert newer.identity == (owned.producer_id, owned.epoch + 1), "the newer one noticed"
