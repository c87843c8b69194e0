"""Runs one pipeline's transactions: carries out what `protocol` says, with deadlines and retries.

*Guarantees* `commit` returns COMMITTED only after the broker said so; an attempt that ended in any
other way left a new identity behind before the next one begins; the blank init is sent by `fence`
alone. *Not guaranteed* that COMMITTED is visible yet: the broker answers before it writes markers.

Not for several threads at once: the pipeline has one lock around it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum

from eos.deadline import Backoff, Deadline
from eos.errors import EosError, UnavailableError
from eos.kafka.api import (
    CommittedOffset,
    DescribedTransaction,
    Identity,
    TopicPartition,
    TransactionPort,
)
from eos.transaction.effects import Requests, Work
from eos.transaction.protocol import step
from eos.transaction.states import (
    AwaitingLedger,
    Committing,
    Effect,
    Failed,
    FenceUnclear,
    InDoubt,
    Open,
    ProtocolEvent,
    ProtocolState,
    Ready,
    Recorded,
    RequestAnswer,
    Unfenced,
)

_NOW = Deadline(0.0)  # has passed: for events that send nothing


class Conclusion(Enum):
    COMMITTED = "committed"
    IN_DOUBT = "in doubt"  # settle(), then the ledger knows
    NOT_COMMITTED = "not committed"  # the ledger's word after a doubt: redo the micro-batch


class Coordinator:
    """One transactional id, one owner, one attempt at a time.

    `reached` is told of the points around EndTxn(commit) at which a crash must be harmless, each
    time one is sent: `end_txn_sent:before`, `end_txn_sent:after` (its bytes have left, no answer
    yet) and `end_txn_answered:before` (the answer is here, nobody knows it).
    """

    def __init__(
        self,
        port: TransactionPort,
        transactional_id: str,
        group: str,
        timeout_ms: int,
        reached: Callable[[str], None] | None = None,
        *,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        self._port = port
        self._requests = Requests(port, transactional_id, group, timeout_ms, reached or _nowhere)
        self.backoff = backoff
        self._state: ProtocolState = Unfenced()
        self._error: EosError = UnavailableError("no request was sent yet")

    @property
    def state(self) -> ProtocolState:
        return self._state

    @property
    def identity(self) -> Identity:
        """The running attempt's, or the one that the next attempt will have."""
        return self._state.identity

    @property
    def is_disputed(self) -> bool:
        """Whether the FencedError may be this process's own doing. If `ownership_check` finds no
        newer owner, call `fence_again`; else it is final."""
        return isinstance(self._state, FenceUnclear)

    @property
    def timeout_ms(self) -> int:
        """Of its transactions; no other owner's is the same (`ownership_check`)."""
        return self._requests.timeout_ms

    def look(self, deadline: Deadline) -> DescribedTransaction:
        """What the broker knows of the id. Changes nothing."""
        return self._requests.look(deadline)

    @property
    def is_in_doubt(self) -> bool:
        """EndTxn(commit) may have left, and nobody has said yet what became of it."""
        return isinstance(self._state, Committing | InDoubt | AwaitingLedger)

    def fence(self, deadline: Deadline) -> Identity:
        """Takes the transactional id from whoever held it, and ends what he left open. Once."""
        self._run(ProtocolEvent.FENCE, deadline)
        return self.identity

    def fence_again(self, seen: Identity, deadline: Deadline) -> Identity:
        """The second chance while `is_disputed`: granted if the id is still at what `look` saw.
        Then read the ledger, and call `settled`."""
        if self.is_disputed:
            self._state = FenceUnclear(seen)
        self._run(ProtocolEvent.FENCE_AGAIN, deadline)
        return self.identity

    @property
    def is_judging(self) -> bool:
        """We have an identity, and before it is used the ledger must say what was before it: then
        call `settled`."""
        return isinstance(self._state, AwaitingLedger)

    def begin(self, deadline: Deadline) -> Identity:
        """Opens an attempt, unless it comes to `is_judging`. TV2 sends nothing; TV1 asks for an
        epoch if the last one is used."""
        if not isinstance(self._state, Ready):
            self._run(ProtocolEvent.BEGIN, deadline)
        if not self.is_judging:
            self._run(ProtocolEvent.BEGIN, deadline)
        return self.identity

    def produce(
        self, record_batches: Mapping[TopicPartition, bytes], deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        """The driver's own ledger record, stamped with `identity`. Returns offsets.

        Retries keep the bytes and with them the sequence: the broker tells a repeated record
        batch from a new one by nothing else.
        """
        if not record_batches:
            raise ValueError("an attempt without a ledger record could not be committed")
        work = Work(record_batches=dict(record_batches))
        self._run(ProtocolEvent.WRITE, deadline, work)
        return work.written

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], deadline: Deadline
    ) -> None:
        """Adds the group's offsets to the transaction: they become valid with its commit."""
        if offsets:
            self._run(ProtocolEvent.OFFSETS, deadline, Work(offsets=dict(offsets)))

    def commit(self, deadline: Deadline) -> Conclusion:
        """Never raises for what the broker answers: from the first byte on it is committed, or
        in doubt until `settle` and the ledger say more."""
        self._run(ProtocolEvent.COMMIT, deadline)
        return Conclusion.IN_DOUBT if isinstance(self._state, InDoubt) else Conclusion.COMMITTED

    def settle(self, deadline: Deadline) -> None:
        """Closes an attempt in doubt. Only after it returns is the ledger's end final: read it,
        then call `settled`."""
        self._run(ProtocolEvent.SETTLE, deadline)

    def settled(self, committed: bool) -> Conclusion:
        """The ledger's word on the attempt that was in doubt, after which the next may begin."""
        self._run(ProtocolEvent.SETTLED, _NOW)
        return Conclusion.COMMITTED if committed else Conclusion.NOT_COMMITTED

    def fail(self, error: EosError) -> None:
        """The attempt must not commit, whatever the broker would say. `abort` comes next."""
        is_first = not isinstance(self._state, Failed)
        self._run(ProtocolEvent.FAIL, _NOW)
        if is_first:  # what follows from a failure must not hide it
            self._error = error

    def abort(self, deadline: Deadline) -> Identity:
        """Ends the attempt with a new identity in hand, or with FencedError if somebody else
        took over meanwhile. May come to `is_judging`, and be called again if the deadline passed.
        """
        self._run(ProtocolEvent.ABORT, deadline)
        return self.identity

    def _run(self, event: ProtocolEvent, deadline: Deadline, work: Work | None = None) -> None:
        try:
            self._carry_out(event, deadline, work or Work())
        except BaseException:
            # An interrupt may have struck between a request and its answer: the attempt is
            # unknown territory. Once EndTxn(commit) may have left, its state says so already.
            if event in {ProtocolEvent.WRITE, ProtocolEvent.OFFSETS} and isinstance(
                self._state, Open | Recorded
            ):
                self._take(ProtocolEvent.FAIL)
            raise

    def _carry_out(self, event: ProtocolEvent, deadline: Deadline, work: Work) -> None:
        """Ends: each repetition waits first, and a wait past the deadline gives up."""
        backoff = self.backoff()
        todo = deque(self._take(event))
        while todo:
            effect = todo.popleft()
            if effect is Effect.RAISE:
                raise self._error
            if effect is Effect.REFRESH:
                self._port.forget_coordinators()
            elif effect is Effect.WAIT:
                backoff.sleep(deadline)
                if deadline.has_passed:  # asked again, it would say "too late" and hide the cause
                    todo = deque(self._take(ProtocolEvent.GAVE_UP))
            else:
                answered, self._error = self._requests.send(effect, self.identity, deadline, work)
                todo.extendleft(reversed(self._take(answered)))

    def _take(self, event: ProtocolEvent | RequestAnswer) -> tuple[Effect, ...]:
        self._state, effects = step(self._port.profile, self._state, event)
        return effects


def _nowhere(_point: str) -> None:
    """No crash is planned."""
