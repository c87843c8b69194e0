"""Run the transactions of one transactional id: send the requests that `protocol` prescribes, with
deadlines and retries.

*Guarantees* `commit` returns COMMITTED only after the broker confirmed it. No two attempts have the
same identity (producer id and epoch). Only `fence` sends InitProducerId without an identity. *Not
guaranteed* that committed records are visible at once: the broker responds before it writes the
markers.

Not thread-safe: the pipeline calls it under one lock.
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
from eos.kafka.outcomes import Outcome
from eos.transaction.effects import Requests, Work
from eos.transaction.protocol import step
from eos.transaction.states import (
    AwaitingLedger,
    Committing,
    Effect,
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

_NOW = Deadline(0.0)  # already passed; for events that send no request


class Conclusion(Enum):
    COMMITTED = "committed"
    IN_DOUBT = "in doubt"  # outcome unknown: call settle(), then read the ledger


class Coordinator:
    """The driver's side of one transactional id, with one attempt (transaction) at a time.

    `reached` is called at the three points around each EndTxn(commit) at which tests inject a
    crash:
    - `end_txn_sent:before`
    - `end_txn_sent:after`: its bytes were sent, and there is no response yet
    - `end_txn_answered:before`: the response arrived, and was not processed yet
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
        # Called with each error of a request that does not end the call, such as one to repeat.
        self.rejected: Callable[[EosError], None] = _unreported
        self._state: ProtocolState = Unfenced()
        self._error: EosError = UnavailableError("no_request_sent", "no request was sent yet")

    @property
    def state(self) -> ProtocolState:
        return self._state

    @property
    def identity(self) -> Identity:
        """The producer id and epoch of the running attempt, or of the next one."""
        return self._state.identity

    @property
    def is_disputed(self) -> bool:
        """Return whether InitProducerId was refused as fenced, and this process's own requests may
        be the cause.

        If `ownership_check` finds no newer owner, call `fence_again`. Otherwise the FencedError is
        final.
        """
        return isinstance(self._state, FenceUnclear)

    @property
    def timeout_ms(self) -> int:
        """The transaction timeout that this process requests. It is drawn at random, so it tells
        `ownership_check` which process was granted the id last."""
        return self._requests.timeout_ms

    def describe(self, deadline: Deadline) -> DescribedTransaction:
        """Return the broker's state of the transactional id (DescribeTransactions), without
        changing it."""
        return self._requests.describe(deadline)

    @property
    def is_in_doubt(self) -> bool:
        """Return whether only the ledger can show how the last attempt ended.

        True from the first byte of EndTxn(commit) until its outcome is known, and while
        `is_awaiting_ledger`.
        """
        return isinstance(self._state, Committing | InDoubt | AwaitingLedger)

    def fence(self, deadline: Deadline) -> Identity:
        """Take over the transactional id from any owner, by InitProducerId without an identity.

        The broker then aborts the open transaction, if there is one. Call this once per process.
        """
        self._run(ProtocolEvent.FENCE, deadline)
        return self.identity

    def fence_again(self, current: Identity, deadline: Deadline) -> Identity:
        """Take the transactional id back while `is_disputed`, by InitProducerId with the identity
        `current` that `describe` returned.

        The broker refuses the request if its identity is a newer one by now. After success, read
        the ledger and call `settled`.
        """
        if self.is_disputed:
            self._state = FenceUnclear(current)
        self._run(ProtocolEvent.FENCE_AGAIN, deadline)
        return self.identity

    @property
    def is_awaiting_ledger(self) -> bool:
        """Return whether the ledger must be read before the new identity is used.

        Then call `settled`.
        """
        return isinstance(self._state, AwaitingLedger)

    def begin(self, deadline: Deadline) -> Identity:
        """Begin an attempt, and return its identity.

        If the current epoch was used already, request a new one first. If `is_awaiting_ledger` is
        true after that, no attempt has begun.
        """
        if not isinstance(self._state, Ready):
            self._run(ProtocolEvent.BEGIN, deadline)
        if not self.is_awaiting_ledger:
            self._run(ProtocolEvent.BEGIN, deadline)
        return self.identity

    def produce(
        self, record_batches: Mapping[TopicPartition, bytes], deadline: Deadline
    ) -> Mapping[TopicPartition, int]:
        """Write the ledger record, stamped with `identity`, and return its offset by partition.

        A retry sends the same bytes with the same sequence, so that the broker recognizes a
        duplicate.
        """
        if not record_batches:
            raise ValueError("an attempt without a ledger record could not be committed")
        work = Work(record_batches=dict(record_batches))
        self._run(ProtocolEvent.WRITE, deadline, work)
        return work.written

    def commit_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], deadline: Deadline
    ) -> None:
        """Add the group's offsets to the transaction. They take effect with its commit."""
        if offsets:
            self._run(ProtocolEvent.OFFSETS, deadline, Work(offsets=dict(offsets)))

    def commit(self, deadline: Deadline) -> Conclusion:
        """Send EndTxn(commit) (`Requests._end`), and return COMMITTED or IN_DOUBT.

        After an error response or no response, the commit may have succeeded: that is IN_DOUBT and
        does not raise. `settle` and the ledger resolve the doubt.
        """
        self._run(ProtocolEvent.COMMIT, deadline)
        return Conclusion.IN_DOUBT if isinstance(self._state, InDoubt) else Conclusion.COMMITTED

    def settle(self, deadline: Deadline) -> None:
        """End the transaction of an attempt in doubt, by InitProducerId with (id, epoch).

        After this returns, the ledger's end is final: read it, then call `settled`.
        """
        self._run(ProtocolEvent.SETTLE, deadline)

    def settled(self) -> None:
        """End the doubt, after the ledger was read. The next attempt may begin."""
        self._run(ProtocolEvent.SETTLED, _NOW)

    def abort(self, deadline: Deadline) -> Identity:
        """Abort the attempt and return a new identity. Raise FencedError if another instance took
        over.

        After this `is_awaiting_ledger` may be true. If the deadline passed, call `abort` again.
        """
        self._run(ProtocolEvent.ABORT, deadline)
        return self.identity

    def _run(self, event: ProtocolEvent, deadline: Deadline, work: Work | None = None) -> None:
        try:
            self._carry_out(event, deadline, work or Work())
        except BaseException:
            # An interrupt may arrive between a request and its response, so the outcome of the
            # attempt is unknown: fail it. If EndTxn(commit) may have been sent, the state has
            # recorded that already.
            if event in {ProtocolEvent.WRITE, ProtocolEvent.OFFSETS} and isinstance(
                self._state, Open | Recorded
            ):
                self._step(ProtocolEvent.FAIL)
            raise

    def _carry_out(self, event: ProtocolEvent, deadline: Deadline, work: Work) -> None:
        """Carry out the effects of an event. This terminates: each retry waits first, and gives up
        when the deadline has passed."""
        backoff = self.backoff()
        todo = deque(self._step(event))
        while todo:
            effect = todo.popleft()
            if effect is Effect.RAISE:
                raise self._error
            if effect is Effect.REFRESH:
                self._port.forget_coordinators()
            elif effect is Effect.WAIT:
                backoff.sleep(deadline)
                if deadline.has_passed:  # a retry would only time out, and hide the cause
                    todo = deque(self._step(ProtocolEvent.GAVE_UP))
            else:
                response, self._error = self._requests.send(effect, self.identity, deadline, work)
                then = self._step(response)
                if response.outcome is not Outcome.OK and Effect.RAISE not in then:
                    self.rejected(self._error)
                todo.extendleft(reversed(then))

    def _step(self, event: ProtocolEvent | RequestAnswer) -> tuple[Effect, ...]:
        self._state, effects = step(self._port.profile, self._state, event)
        return effects


def _nowhere(_point: str) -> None:
    """Ignore the crash point: no test injects a crash."""


def _unreported(_error: EosError) -> None:
    """Ignore the error: nothing counts it."""
