"""Two owners of one transactional id on a broker that loses, delays and repeats what they say.

The oracle shares nothing with the code under test: it reads the broker's log, marker by marker, and
compares it with what each owner claimed. Each owner is a small pipeline: it fences, reads how far
the ledger has come, and commits micro-batch after micro-batch. At the end:

- atomic: of an attempt all records, its ledger record and its offsets are visible, or nothing;
- once: the visible ledger records are micro-batches 0, 1, 2, ... without a gap or a repetition;
- fenced: after a newer owner's fence nothing more of an older one became visible;
- honest: what an owner was told (committed, not committed) is what the log says.
"""

from dataclasses import dataclass, field
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.errors import examples
from support.simulated_broker import Entry, Fault, Kind, SimulatedBroker, SimulatedPort, Strike
from support.simulated_broker.kit import Tries, record_batch

from eos.deadline import Backoff
from eos.errors import EosError, FencedError, NoAnswerError
from eos.kafka.api import Api, CommittedOffset, Identity, TopicPartition, TransactionProfile
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.protocol import EPOCH_LAST
from eos.transaction.states import (
    Aborting,
    AwaitingLedger,
    EpochUsed,
    Failed,
    Fenced,
    FenceUnclear,
    Open,
    ProtocolEvent,
    Ready,
    Recorded,
    Renewing,
    Stopped,
    Unfenced,
)

LEDGER, SOURCE = TopicPartition("ledger", 0), TopicPartition("source", 0)
TARGETS = (TopicPartition("target", 0), TopicPartition("target", 1))
OWNERS = st.sampled_from(("A", "B"))
TIMEOUT_MS = 60_000
CODES = (-1, 3, 6, 7, 14, 15, 16, 19, 20, 29, 45, 47, 48, 49, 51, 53, 90, 120, 999)
REQUESTS = [api for api in Api if api is not Api.FIND_COORDINATOR]
COMMITTED, NOT_COMMITTED, OPEN = "committed", "not committed", "not concluded"


class NoWait(Backoff):
    def sleep(self, deadline):
        assert deadline.left_ms == 0


@dataclass
class Attempt:
    number: int
    generation: int
    identity: Identity
    micro_batch: int
    written: dict[TopicPartition, int] = field(default_factory=dict)  # records, acknowledged
    claim: str = OPEN

    def value(self, at: TopicPartition) -> bytes:
        return f"<{self.number}|{at.topic}-{at.partition}|{self.micro_batch}>".encode()


@dataclass
class Owner:
    """A process with its coordinator. `position` is the next micro-batch, as its ledger says."""

    coordinator: Coordinator
    generation: int = -1
    position: int = 0
    attempt: Attempt | None = None


def micro_batch_of(entry: Entry) -> int:
    return int(entry.blob.split(b"<")[-1].split(b">")[0].split(b"|")[2])


def number_of(entry: Entry) -> int:
    return int(entry.blob.split(b"<")[-1].split(b"|")[0])


class Owners(RuleBasedStateMachine):
    """One cluster, one transactional id, two processes that both believe they own it."""

    @initialize(
        profile=st.sampled_from(list(TransactionProfile)),
        server=st.sampled_from(list(TransactionProfile)),
        near_the_end=st.booleans(),
    )
    def begin(self, profile, server, near_the_end):
        # a TV2 client needs a TV2 cluster
        server = TransactionProfile.TV2 if profile is TransactionProfile.TV2 else server
        self.profile = profile
        self.broker = SimulatedBroker({"ledger": 1, "source": 1, "target": 2}, server)
        self.port = SimulatedPort(self.broker, profile)
        self.timeouts = count(TIMEOUT_MS, -1)  # no two owners ask for the same
        self.owners = {name: Owner(self.new_coordinator()) for name in ("A", "B")}
        self.attempts: list[Attempt] = []
        self.generation = 0
        self.frozen: dict[int, set[int]] = {}  # generation -> committed attempts when it ended
        if near_the_end:
            self.broker.transactions.init("id", TIMEOUT_MS, Identity(-1, -1))
            found = self.broker.transactions.by_name["id"]
            found.identity = Identity(found.identity.producer_id, EPOCH_LAST - 3)

    def new_coordinator(self):
        return Coordinator(self.port, "id", "group", next(self.timeouts), backoff=NoWait)

    def committed_attempts(self, at=LEDGER):
        """From the log: an attempt is in once the marker after its record batch says COMMIT."""
        waiting, committed = {}, []
        for entry in self.broker.logs[at].entries:
            if entry.kind is Kind.DATA:
                waiting.setdefault(entry.identity.producer_id, []).append(entry)
            else:
                ended = waiting.pop(entry.identity.producer_id, [])
                committed += ended if entry.kind is Kind.COMMIT else []
        return sorted(committed)

    def read_position(self, owner):
        owner.position = 1 + max(map(micro_batch_of, self.committed_attempts()), default=-1)

    def takes_over(self, owner):
        """What is committed now is all that owners before this one may ever commit."""
        self.generation += 1
        owner.generation = self.generation
        committed = {number_of(entry) for entry in self.committed_attempts()}
        for generation in range(self.generation):
            self.frozen.setdefault(generation, committed)

    def conclude(self, owner, claim):
        attempt = owner.attempt
        if attempt is None:
            return
        attempt.claim = claim
        owner.attempt = None
        if claim == COMMITTED:
            owner.position = attempt.micro_batch + 1

    def dispute(self, owner):
        """If nobody else was granted an init since: the fence once more. Else its end."""
        if not owner.coordinator.is_disputed:
            return
        seen = owner.coordinator.describe(Tries(2))
        if seen.timeout_ms != owner.coordinator.timeout_ms:
            return
        try:
            owner.coordinator.fence_again(seen.identity, Tries(2))
        except EosError:
            return
        self.takes_over(owner)
        self.judge(owner)

    def rotated(self, owner):
        """Another producer id: its epochs ran out, or the broker forgot who had owned the id."""
        self.takes_over(owner)
        self.judge(owner)

    def judge(self, owner):
        """Init has been granted: the ledger's word is final."""
        committed = {number_of(entry) for entry in self.committed_attempts()}
        attempt = owner.attempt
        is_committed = attempt is not None and attempt.number in committed
        owner.coordinator.settled()
        self.conclude(owner, COMMITTED if is_committed else NOT_COMMITTED)
        self.read_position(owner)

    # --- the pipeline ---------------------------------------------------------------------------

    @rule(name=OWNERS, steps=st.integers(1, 12), writes=st.lists(st.sampled_from(TARGETS)))
    def work(self, name, steps, writes):
        """An owner goes on with whatever comes next for it."""
        owner = self.owners[name]
        for _ in range(steps):
            if owner.attempt and writes and isinstance(owner.coordinator.state, Open):
                self.write(owner, writes.pop())
            else:
                self.next_step(owner)

    def next_step(self, owner):
        state = owner.coordinator.state
        if isinstance(state, Unfenced):
            self.fence(owner)
        elif isinstance(state, Ready | EpochUsed):
            self.begin_attempt(owner)
        elif isinstance(state, Open):
            self.write_ledger(owner)
        elif isinstance(state, Recorded):
            is_complete = SOURCE in owner.attempt.written
            self.commit(owner) if is_complete else self.note_offsets(owner)
        elif owner.coordinator.is_in_doubt:
            self.settle(owner)
        elif isinstance(state, Failed | Aborting | Renewing):
            self.abort(owner)

    @rule(name=OWNERS)
    def give_up_an_attempt(self, name):
        owner = self.owners[name]
        if isinstance(owner.coordinator.state, Open | Recorded):
            self.abort(owner)

    @rule(name=OWNERS, seldom=st.integers(0, 4))
    def restart(self, name, seldom):
        """A new process. What the former one believed dies with it."""
        is_over = isinstance(self.owners[name].coordinator.state, Fenced | Stopped | FenceUnclear)
        if seldom and not is_over:
            return
        owner = self.owners[name] = Owner(self.new_coordinator())
        self.fence(owner)

    def fence(self, owner):
        try:
            owner.coordinator.fence(Tries(3))
        except EosError:
            return
        self.takes_over(owner)
        self.read_position(owner)

    def begin_attempt(self, owner):
        try:
            identity = owner.coordinator.begin(Tries(2))
        except EosError:
            self.dispute(owner)
            return
        if owner.coordinator.is_awaiting_ledger:
            self.rotated(owner)
            return
        used = [attempt.identity for attempt in self.attempts]
        assert identity not in used, "two attempts share an epoch"
        number = len(self.attempts)
        owner.attempt = Attempt(number, owner.generation, identity, owner.position)
        self.attempts.append(owner.attempt)

    def write(self, owner, at):
        """A writer: its partition's next record batch, the same bytes until it is answered."""
        attempt = owner.attempt
        error = self.send(attempt.identity, at, attempt.written.get(at, 0), attempt.value(at))
        if error == 0:
            attempt.written[at] = attempt.written.get(at, 0) + 1
        else:
            owner.coordinator._run(ProtocolEvent.FAIL, Tries(1))

    def send(self, identity, at, sequence, value):
        blob = record_batch(identity, sequence, [value])
        for _ in range(2):
            try:
                if self.profile is TransactionProfile.TV1:
                    self.port.add_partitions("id", identity, frozenset({at}), Tries(1))
                return self.port.produce("id", {at: blob}, Tries(1))[at].error
            except NoAnswerError:
                continue
        return "nothing"

    def write_ledger(self, owner):
        attempt = owner.attempt
        blob = record_batch(attempt.identity, 0, [attempt.value(LEDGER)])
        try:
            owner.coordinator.produce({LEDGER: blob}, Tries(2))
        except EosError:
            return
        attempt.written[LEDGER] = 1

    def note_offsets(self, owner):
        attempt = owner.attempt
        offset = CommittedOffset(attempt.micro_batch, str(attempt.number))
        try:
            owner.coordinator.commit_offsets({SOURCE: offset}, Tries(2))
        except EosError:
            return
        attempt.written[SOURCE] = 1

    def commit(self, owner):
        if owner.coordinator.commit(Tries(2)) is Conclusion.COMMITTED:
            self.conclude(owner, COMMITTED)

    def settle(self, owner):
        try:
            owner.coordinator.settle(Tries(2))
        except FencedError:
            self.dispute(owner)
            return
        except EosError:
            return
        assert isinstance(owner.coordinator.state, AwaitingLedger)
        self.judge(owner)

    def abort(self, owner):
        before = owner.attempt.identity if owner.attempt else None
        self.conclude(owner, NOT_COMMITTED)  # it was never sent EndTxn(commit)
        try:
            owner.coordinator.abort(Tries(2))
        except FencedError:
            self.dispute(owner)
            return
        except EosError:
            return
        assert owner.coordinator.identity != before
        if owner.coordinator.is_awaiting_ledger:
            self.rotated(owner)

    # --- the world ------------------------------------------------------------------------------

    @rule(
        api=st.sampled_from([*REQUESTS, Api.END_TXN, Api.END_TXN]),
        strike=st.sampled_from(list(Strike)),
        nth=st.integers(1, 3),
        times=st.integers(1, 3),
        code=st.sampled_from(CODES),
    )
    def arm(self, api, strike, nth, times, code):
        self.broker.arm(Fault(api, strike, nth, code, times))

    @precondition(lambda self: self.broker.late)
    @rule()
    def deliver_late(self):
        self.broker.deliver_late()

    @rule(duration_ms=st.sampled_from((TIMEOUT_MS // 2, TIMEOUT_MS)))
    def time_passes(self, duration_ms):
        self.broker.advance(duration_ms)

    @rule()
    def hold_markers(self):
        self.broker.hold_markers()

    @rule()
    def release_markers(self):
        self.broker.release_markers()

    @rule(seldom=st.integers(0, 9))
    def the_id_expires(self, seldom):
        if seldom:
            return
        found = self.broker.transactions.by_name.get("id")
        if found and found.phase.value in {"Empty", "CompleteCommit", "CompleteAbort"}:
            self.broker.expire("id")

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), at=st.sampled_from(TARGETS), sequence=st.integers(0, 2))
    def a_straggler_writes(self, data, at, sequence):
        """A task of an attempt that has ended. Its record must never be seen."""
        ended = [attempt for attempt in self.attempts if attempt.claim == NOT_COMMITTED]
        if ended:
            attempt = data.draw(st.sampled_from(ended))
            self.send(attempt.identity, at, sequence, b"<-1|straggler|-1>")

    # --- the end --------------------------------------------------------------------------------

    def teardown(self):
        if not hasattr(self, "broker"):
            return
        self.broker.faults.disarm()
        self.broker.release_markers()
        self.broker.deliver_late()
        self.broker.release_markers()
        self.broker.advance(TIMEOUT_MS)
        self.check()

    def check(self):
        ledger = self.committed_attempts()
        committed = [number_of(entry) for entry in ledger]
        assert [micro_batch_of(entry) for entry in ledger] == list(range(len(ledger))), "once"
        for attempt in self.attempts:
            is_in = attempt.number in committed
            honest = {COMMITTED: is_in, NOT_COMMITTED: not is_in, OPEN: True}
            assert honest[attempt.claim], f"honest: {attempt}"
            if attempt.generation in self.frozen and is_in:
                assert attempt.number in self.frozen[attempt.generation], f"fenced: {attempt}"
        expected = {number: self.attempts[number].written for number in committed}
        for at in TARGETS:
            seen: dict[int, int] = {}
            for entry in self.committed_attempts(at):
                seen[number_of(entry)] = seen.get(number_of(entry), 0) + 1
            assert seen == {n: w[at] for n, w in expected.items() if at in w}, f"atomic: {at}"
        offset = self.broker.committed_offsets("group").get(SOURCE)
        assert (offset is None) == (not committed), "atomic: offsets"
        if offset is not None:
            assert (offset.offset, int(offset.metadata)) == (len(ledger) - 1, committed[-1])


Owners.TestCase.settings = settings(
    max_examples=examples(300),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
TestOwners = Owners.TestCase
