"""Every error code on every request, and every row of the transition table, on a live coordinator.

The rows that no code of Kafka's leads into are stepped by hand in `test_protocol`.
"""

import contextlib

import pytest
from support.simulated_broker import Fault, SimulatedBroker, SimulatedPort, Strike
from support.simulated_broker.kit import Tries, record_batch

from eos.deadline import Backoff
from eos.errors import EosError, FencedError
from eos.kafka.api import Api, CommittedOffset, Identity, TopicPartition, TransactionProfile
from eos.kafka.outcomes import Outcome, outcome_of
from eos.transaction import coordinator as module
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.protocol import EPOCH_LAST, TABLES
from eos.transaction.states import (
    Aborting,
    AwaitingLedger,
    Committing,
    EpochUsed,
    Failed,
    Fenced,
    FenceUnclear,
    InDoubt,
    Open,
    ProtocolEvent,
    Ready,
    Recorded,
    Renewing,
    Stopped,
    Unfenced,
)

LEDGER, SOURCE = TopicPartition("ledger", 0), TopicPartition("source", 0)
CODES = [-1, *range(1, 134), 999]
REQUESTS = [api for api in Api if api is not Api.FIND_COORDINATOR]
BOTH = pytest.mark.parametrize("profile", TransactionProfile)


class Once(Backoff):
    """No wait, but the deadline is asked, which is what ends a Tries."""

    def sleep(self, deadline):
        assert deadline.left_ms == 0


def owner(profile, server=TransactionProfile.TV2):
    broker = SimulatedBroker({"ledger": 1, "source": 1}, server)
    port = SimulatedPort(broker, profile)
    return broker, Coordinator(port, "id", "group", 60_000, backoff=Once)


def one_attempt(coordinator):
    """What micro_batch does with an attempt. Returns what it may claim afterwards."""
    coordinator.begin(Tries(3))
    record(coordinator)
    offsets(coordinator)
    if coordinator.commit(Tries(3)) is Conclusion.COMMITTED:
        return True
    coordinator.settle(Tries(3))
    return None


def record(coordinator):
    coordinator.produce({LEDGER: record_batch(coordinator.identity, 0, [b"x"])}, Tries(3))


def offsets(coordinator):
    coordinator.commit_offsets({SOURCE: CommittedOffset(7)}, Tries(3))


@BOTH
@pytest.mark.parametrize("times", [1, 99])
@pytest.mark.parametrize("strike", [Strike.ANSWER, Strike.CARRY_OUT_AND_ANSWER])
@pytest.mark.parametrize("api", REQUESTS)
def test_no_code_leads_to_a_wrong_commit(profile, strike, times, api):
    """Whatever a request is answered, once or always, the claim afterwards equals the log."""
    for code in CODES:
        broker, coordinator = owner(profile)
        coordinator.fence(Tries(3))
        fault = Fault(api, strike, code=code, times=times)
        broker.arm(fault)
        claim = None
        try:
            claim = one_attempt(coordinator)
        except EosError:
            if not coordinator.is_in_doubt:
                claim = False
        broker.faults.disarm()
        is_there = bool(broker.read_committed(LEDGER))
        assert is_there == bool(broker.committed_offsets("group")), code
        assert claim in {None, is_there}, code
        if claim is False and not isinstance(coordinator.state, Fenced | Stopped | FenceUnclear):
            before = coordinator.identity
            after = coordinator.abort(Tries(3))
            assert after == before or after > before
            assert isinstance(coordinator.state, Ready)
            assert broker.read_committed(LEDGER) == []


@BOTH
@pytest.mark.parametrize("code", CODES)
def test_no_answer_to_a_fence_lets_an_attempt_begin_unfenced(profile, code):
    broker, coordinator = owner(profile)
    broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.ANSWER, code=code, times=99))
    with pytest.raises(EosError):
        coordinator.fence(Tries(3))
    assert isinstance(coordinator.state, Unfenced | Fenced | Stopped)
    with pytest.raises(EosError):
        coordinator.begin(Tries(3))


# --- every row ------------------------------------------------------------------------------------


def _fenced(coordinator):
    coordinator.fence(Tries(3))


def _open(coordinator):
    _fenced(coordinator)
    coordinator.begin(Tries(3))


def _recorded(coordinator):
    _open(coordinator)
    record(coordinator)


def _failed(coordinator):
    _recorded(coordinator)
    coordinator._run(ProtocolEvent.FAIL, Tries(3))


def _struck(coordinator, api, call, code=-1):
    """A request that goes unanswered for good, or is refused with `code`."""
    broker = coordinator._port._broker
    strike = Strike.LOSE_REQUEST if code < 0 else Strike.ANSWER
    broker.arm(Fault(api, strike, code=code, times=99))
    try:
        call()
    except EosError:
        pass
    finally:
        broker.faults.disarm()


def _in_doubt(coordinator):
    _recorded(coordinator)
    _struck(coordinator, Api.END_TXN, lambda: coordinator.commit(Tries(2)))


def _interrupted_commit(coordinator):
    _recorded(coordinator)

    def die(*_, **__):
        raise KeyboardInterrupt

    real, coordinator._port.end_txn = coordinator._port.end_txn, die
    with pytest.raises(KeyboardInterrupt):
        coordinator.commit(Tries(2))
    coordinator._port.end_txn = real


def _awaiting_ledger(coordinator):
    _in_doubt(coordinator)
    coordinator.settle(Tries(3))


def _aborting(coordinator):
    _recorded(coordinator)
    _struck(coordinator, Api.END_TXN, lambda: coordinator.abort(Tries(2)))


def _renewing(coordinator):
    _recorded(coordinator)
    broker = coordinator._port._broker
    broker.arm(Fault(Api.INIT_PRODUCER_ID, Strike.LOSE_REQUEST, times=99))
    _struck(coordinator, Api.END_TXN, lambda: coordinator.abort(Tries(2)), code=90)


def _spent(coordinator):
    _recorded(coordinator)
    coordinator.commit(Tries(3))


def _disputed(coordinator):
    _in_doubt(coordinator)
    _struck(coordinator, Api.INIT_PRODUCER_ID, lambda: coordinator.settle(Tries(2)), code=90)


def _replaced(coordinator):
    _struck(coordinator, Api.INIT_PRODUCER_ID, lambda: coordinator.fence(Tries(2)), code=90)


def _stopped(coordinator):
    _struck(coordinator, Api.INIT_PRODUCER_ID, lambda: coordinator.fence(Tries(2)), code=53)


WAYS = {
    Unfenced: lambda _: None,
    Ready: _fenced,
    Open: _open,
    Recorded: _recorded,
    Failed: _failed,
    Committing: _interrupted_commit,
    InDoubt: _in_doubt,
    AwaitingLedger: _awaiting_ledger,
    Aborting: _aborting,
    Renewing: _renewing,
    EpochUsed: _spent,
    FenceUnclear: _disputed,
    Fenced: _replaced,
    Stopped: _stopped,
}
CALLS = {
    ProtocolEvent.FENCE: lambda c: c.fence(Tries(3)),
    ProtocolEvent.BEGIN: lambda c: c._run(ProtocolEvent.BEGIN, Tries(3)),
    ProtocolEvent.WRITE: record,
    ProtocolEvent.OFFSETS: offsets,
    ProtocolEvent.FAIL: lambda c: c._run(ProtocolEvent.FAIL, Tries(3)),
    ProtocolEvent.COMMIT: lambda c: c.commit(Tries(3)),
    ProtocolEvent.ABORT: lambda c: c.abort(Tries(3)),
    ProtocolEvent.SETTLE: lambda c: c.settle(Tries(3)),
    ProtocolEvent.SETTLED: lambda c: c.settled(),
    ProtocolEvent.FENCE_AGAIN: lambda c: c.fence_again(c.identity, Tries(3)),
}
# which call makes a state ask which API
ASKS = {
    (Unfenced, Api.INIT_PRODUCER_ID): ProtocolEvent.FENCE,
    (FenceUnclear, Api.INIT_PRODUCER_ID): ProtocolEvent.FENCE_AGAIN,
    (Renewing, Api.INIT_PRODUCER_ID): ProtocolEvent.ABORT,
    (InDoubt, Api.INIT_PRODUCER_ID): ProtocolEvent.SETTLE,
    (Committing, Api.END_TXN): ProtocolEvent.COMMIT,
    (Aborting, Api.END_TXN): ProtocolEvent.ABORT,
    (Open, Api.PRODUCE): ProtocolEvent.WRITE,
    (Open, Api.ADD_PARTITIONS): ProtocolEvent.WRITE,
    (Open, Api.ADD_OFFSETS): ProtocolEvent.OFFSETS,
    (Open, Api.TXN_OFFSET_COMMIT): ProtocolEvent.OFFSETS,
    (Recorded, Api.ADD_OFFSETS): ProtocolEvent.OFFSETS,
    (Recorded, Api.TXN_OFFSET_COMMIT): ProtocolEvent.OFFSETS,
}


def _trigger(coordinator, state, key):
    """Makes the coordinator, which is in `state`, take the row's event."""
    broker = coordinator._port._broker
    if key is ProtocolEvent.ROTATED:
        kept = broker.transactions.by_name["id"]
        kept.identity = Identity(kept.identity.producer_id, EPOCH_LAST)
        coordinator._state = state(kept.identity)
        coordinator.abort(Tries(3))
        return
    if isinstance(key, ProtocolEvent) and key is not ProtocolEvent.GAVE_UP:
        call = CALLS[key]
    else:
        asked = (
            [api for at, api in ASKS if at is state] if key is ProtocolEvent.GAVE_UP else [key[0]]
        )
        asked = [api for api in asked if (state, api) in ASKS][-1]
        call = CALLS[ASKS[state, asked]]
        if key is ProtocolEvent.GAVE_UP or key[1] is None:
            broker.arm(Fault(asked, Strike.LOSE_REQUEST, times=99))
        elif key[1] is not Outcome.OK:
            code = next(code for code in CODES if outcome_of(asked, code) is key[1])
            broker.arm(Fault(asked, Strike.ANSWER, code=code))
    with contextlib.suppress(EosError):
        call(coordinator)


@BOTH
def test_every_row_of_the_table_is_taken_on_a_live_coordinator(profile, monkeypatch):
    taken = set()
    real = module.step

    def watched(profile, state, event):
        key = event if isinstance(event, ProtocolEvent) else (event.api, event.outcome)
        after = real(profile, state, event)
        if type(state) is Renewing and type(after[0]) is AwaitingLedger:
            key = ProtocolEvent.ROTATED
        taken.add((type(state), key))
        return after

    monkeypatch.setattr(module, "step", watched)
    without_a_code = set()
    for state, key in TABLES[profile]:
        if not isinstance(key, ProtocolEvent) and key[1] is not None:
            api, outcome = key
            if outcome not in {outcome_of(api, code) for code in [0, *CODES]}:
                without_a_code.add((state, key))
                continue
        broker, coordinator = owner(profile)
        WAYS[state](coordinator)
        assert type(coordinator.state) is state, (state, key)
        broker.faults.disarm()
        before = set(taken)
        taken.discard((state, key))
        _trigger(coordinator, state, key)
        assert (state, key) in taken, (state, key)
        taken |= before
    assert set(TABLES[profile]) - taken == without_a_code
    assert {key[1] for _, key in without_a_code} == {Outcome.FENCED}


def test_a_fenced_owner_stays_fenced_whatever_it_tries():
    broker, coordinator = owner(TransactionProfile.TV2)
    _replaced(coordinator)
    for call in CALLS.values():
        with pytest.raises(FencedError):
            call(coordinator)
    assert broker.logs[LEDGER].entries == []
