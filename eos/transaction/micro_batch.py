"""Commit each micro-batch in one Kafka transaction, and abort and retry attempts that fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from enum import Enum
from typing import Any

from eos.deadline import Deadline
from eos.errors import AttemptFailedError, DedupRetryError, PromiseBrokenError, Recovery
from eos.faults import Points
from eos.kafka.api import NO_IDENTITY, CommittedOffset, Identity
from eos.ledger import ranges
from eos.ledger.group_offsets import GroupCheck, SourceView
from eos.ledger.ledger import Ledger
from eos.ledger.ranges import Decision, PlannedBatch, require_same_topics
from eos.ledger.record import AttemptRecord, Kind, LedgerRecord, Position, advanced, nested
from eos.observe import events
from eos.observe.bus import Bus
from eos.transaction import attempt_events
from eos.transaction.attempt_events import explains, reason_of, recovery_of
from eos.transaction.attempt_work import AttemptWork
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.failed_attempts import FailedAttempts
from eos.transaction.group_mirror import Group, GroupMirror
from eos.transaction.measures import Measures
from eos.transaction.ownership_check import OwnershipCheck

ATTEMPTS_MAX = 3
# Time limit for the driver's requests in one step of a transaction, retries included. If EndTxn
# does not finish within it, the next startup resolves the transaction: no record is lost.
STEP_TIMEOUT_MS = 60_000


class AttemptOutcome(Enum):
    """What is known about an attempt (one try at a micro-batch) that raised an error."""

    COMMITTED = "committed"  # the error was raised after the commit
    IN_DOUBT = "in doubt"  # EndTxn(commit) may have arrived, and the ledger was not readable
    FENCED = "fenced"  # another instance took over
    RETRY = "retry"  # this attempt failed; another one may commit the micro-batch
    STOP = "stop"  # no attempt of this run can commit


@dataclass(slots=True)
class MicroBatches:
    """The commits of a run: micro-batches one after another, each in one Kafka transaction.
    `position` has the source offsets after the last commit."""

    pipeline: str
    coordinator: Coordinator
    ledger: Ledger
    position: Position
    bus: Bus
    points: Points
    source: SourceView
    last: InitVar[LedgerRecord | None] = None  # the ledger's last record; None if it is empty
    mirror: InitVar[GroupMirror | None] = None  # if the transactions have no group offsets
    failed: FailedAttempts = field(default_factory=FailedAttempts)
    measures: Measures = field(default_factory=Measures)
    is_stopping: bool = False
    last_at: float = field(default_factory=time.monotonic)  # time of the last commit
    ownership: OwnershipCheck = field(init=False)
    group: Group = field(init=False)
    # Producer id and epoch of an attempt whose transaction may still be open. NO_IDENTITY if there
    # is none.
    _open: Identity = field(default=NO_IDENTITY, init=False)
    _returned: tuple[str, int] | None = field(default=None, init=False)  # the last step's ids
    # A micro-batch and an idle refresh never run at the same time.
    lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self, last: LedgerRecord | None, mirror: GroupMirror | None) -> None:
        self.ownership = OwnershipCheck(self.pipeline, self.coordinator, self.ledger)
        if last is not None:
            self.ownership.last, self.ownership.last_offset = last.identity, last.offset
        self.group = mirror or GroupCheck(self.source, self.bus)
        self.coordinator.rejected = lambda error: self.bus.emit(attempt_events.rejection(error))

    def run(self, step: PlannedBatch, work: AttemptWork) -> None:
        """Commit the micro-batch in one transaction, unless the ledger lists it as committed. Raise
        an error if it is not committed in the end, or may not be."""
        # Spark begins a micro-batch only after it has written `commits/N` of the previous one. A
        # micro-batch with several transactions is several steps.
        ids = step.query_id, step.batch_id
        if self._returned not in (None, ids):
            self.points.reached("commit_log:after")
        with self.lock:
            self._finish_interrupted()
            self.group.compare(self.position.ends)
            decision = self._decide(step)
            if decision.is_done:
                self.bus.emit(events.MicroBatchSkipped(batch_id=step.batch_id))
                work.skip(self.position)
            else:
                self._until_committed(
                    step.batch_id, lambda number: self._attempt(number, step, decision, work)
                )
                self._follow(work)
        if not decision.is_done:
            self.points.reached("commit_log:before")
        self._returned = ids

    def _follow(self, work: AttemptWork) -> None:
        """Let the Delta tables follow the committed micro-batch, if there are any."""
        began = time.monotonic()
        position = work.follow(self.position, self.ownership.last_offset)
        if position is not self.position:
            self.measures.tables_written(began)
        self.position = position

    # --- ledger records without a micro-batch

    def note(
        self, kind: Kind, position: Position | None = None, note: Mapping[str, Any] | None = None
    ) -> None:
        """Commit a ledger record of this kind (start, refresh, ...) and all group offsets in one
        transaction, without a micro-batch."""
        with self.lock:
            self._finish_interrupted()
            self._note(kind, position or self.position, note)

    def note_stop(self, *, is_at_rest: bool) -> None:
        """Commit the record of a clean stop. Unless `is_at_rest`, Spark's query may still write
        to its checkpoint; the record then names no checkpoint, and the next run uses another
        folder."""
        with self.lock:
            self._finish_interrupted()
            here = self.position
            self._note("stop", here if is_at_rest else replace(here, checkpoint=""), None)

    def refresh(self, idle_ms: int) -> bool:
        """Commit an empty transaction if nothing was committed for `idle_ms`, so that Kafka expires
        neither the group offsets nor the transactional id. Return whether it did."""
        if not self.lock.acquire(blocking=False):
            return False  # a micro-batch is running, and its commit refreshes both
        try:
            if time.monotonic() - self.last_at < idle_ms / 1000 or self.is_stopping:
                return False
            self._finish_interrupted()
            self.group.compare(self.position.ends)
            self._note("refresh", self.position, None)
            return True
        finally:
            self.lock.release()

    def is_at_rest(self, within_s: float) -> bool:
        """Wait up to `within_s` seconds for a running micro-batch to end. Return whether none is
        running.

        If `is_stopping` was set before the call, no attempt at a micro-batch begins after it.
        """
        if not self.lock.acquire(timeout=within_s):
            return False
        self.lock.release()  # the caller next waits for Spark's thread, which may need the lock
        return True

    def require_owner(self) -> None:
        """Raise FencedError if another instance took over. To find out, begin and abort an empty
        attempt, unless an earlier attempt is in doubt."""
        with self.lock:
            if not self.ownership.is_undecided:
                deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
                self.ownership.begin(deadline)
                self.ownership.abort(deadline)

    # --- which offsets are left to commit

    def _decide(self, step: PlannedBatch) -> Decision:
        unknown = ranges.unknown(self.position, step)
        earliest = self.source.earliest(unknown) if unknown else {}
        try:
            return ranges.decide(self.pipeline, self.position, step, earliest)
        except PromiseBrokenError:
            # If a topic was recreated, raise that error: offsets of two topics can't be compared.
            self._same_topics(step)
            raise

    def _same_topics(self, step: PlannedBatch) -> Mapping[str, str]:
        """Return the source topics' ids. Raise PromiseBrokenError if a topic was recreated."""
        topic_ids = self.source.topic_ids({tp.topic for tp in (*self.position.ends, *step.ends)})
        require_same_topics(self.pipeline, self.position, topic_ids)
        return topic_ids

    # --- attempts

    def _until_committed(self, batch_id: int, attempt: Callable[[int], None]) -> None:
        """Run attempts (at most three) until one commits. If an attempt raises, its outcome is one
        of:

        - COMMITTED: the error came after the commit, which is final. The micro-batch is not run
          again.
        - IN_DOUBT: no abort, since the transaction may be committed. The next call or the next
          startup reads the ledger.
        - FENCED: no further request. The new owner aborts the attempt.
        - RETRY: abort, and run the next attempt under a new epoch.
        - STOP: abort, and end the run.
        """
        before = self.position
        for number in range(1, ATTEMPTS_MAX + 1):
            try:
                attempt(number)
                return
            except Exception as error:
                outcome = self._outcome(error, number, is_committed=self.position is not before)
                if outcome in (AttemptOutcome.COMMITTED, AttemptOutcome.IN_DOUBT):
                    raise
                self._list_failed(batch_id, number, error)
                if outcome is AttemptOutcome.FENCED:
                    raise
                will_retry = self._abort(batch_id, number, error, outcome)
                if not will_retry:
                    raise

    def _outcome(self, error: Exception, number: int, *, is_committed: bool) -> AttemptOutcome:
        if is_committed:
            return AttemptOutcome.COMMITTED
        if self.ownership.is_undecided:
            return AttemptOutcome.IN_DOUBT
        recovery = recovery_of(error)
        if recovery is Recovery.FENCED:
            return AttemptOutcome.FENCED
        # After a stop request, no micro-batch is retried. A ledger record without a micro-batch
        # (`points.kind` is set), such as the stop record, still is.
        is_wanted = not self.is_stopping or bool(self.points.kind)
        may_retry = recovery is Recovery.REDO and number < ATTEMPTS_MAX
        return AttemptOutcome.RETRY if may_retry and is_wanted else AttemptOutcome.STOP

    def _abort(self, batch_id: int, number: int, error: Exception, outcome: AttemptOutcome) -> bool:
        """Abort the attempt, and return whether the next one follows.

        The abort ends the attempt's epoch, even if the attempt seems to have sent nothing. If one
        of its tasks still runs, the broker rejects what it sends, so it can't write into the next
        attempt. If the abort fails, its error must not hide the attempt's error.
        """
        failed: Exception | None = None
        try:
            self.ownership.abort(Deadline.after_ms(STEP_TIMEOUT_MS))
        except Exception as unended:  # noqa: BLE001 - any of them would hide `error`
            failed = unended
        will_retry = outcome is AttemptOutcome.RETRY and failed is None
        if will_retry and isinstance(error, DedupRetryError):
            self.bus.emit(events.AttemptRetried(batch_id, number, reason_of(error), *self._open))
            return True
        may_retry = recovery_of(error) is Recovery.REDO and number < ATTEMPTS_MAX
        is_asked_to_stop = outcome is AttemptOutcome.STOP and may_retry and failed is None
        if not self.points.kind:
            ends = will_retry, is_asked_to_stop
            self.bus.emit(attempt_events.failure(batch_id, number, error, self._open, *ends))
        elif will_retry:  # else the caller reports the error
            text = f"the {self.points.kind} record could not be written: {reason_of(error)}"
            self.bus.emit(events.Warned(f"{text}; it is retried"))
        if failed is not None:
            if explains(failed, error):
                raise failed from error
            self.bus.emit(events.Warned(f"the attempt could not be aborted: {reason_of(failed)}"))
        return will_retry

    def _list_failed(self, batch_id: int, number: int, error: Exception) -> None:
        if self._open not in (NO_IDENTITY, self.ownership.last):  # else the attempt never began
            self.failed.add(self._open, batch_id, number, error)

    def _finish_interrupted(self) -> None:
        """End the transaction of an earlier call that an exception interrupted, if there is one. It
        may be open, in doubt or committed: the ledger's last record decides."""
        if self._open == NO_IDENTITY:
            return
        known = self.ownership.last
        found = self.ownership.conclude(self._open, Deadline.after_ms(STEP_TIMEOUT_MS))
        # The interrupt may come after the call read its own record, which sets `ownership.last`,
        # but before it set the position. Then `found` equals `known`, and `_open` shows that.
        if found is not None and (found.identity != known or found.identity == self._open):
            # Delta tables are written after the ledger record, so this process may know newer
            # versions of them than the record.
            self.position = replace(found.position, tables=self.position.tables)
            if found.identity == self._open:  # its record has listed them
                self.failed.clear()
        self._open = NO_IDENTITY

    def _attempt(
        self, number: int, step: PlannedBatch, decision: Decision, work: AttemptWork
    ) -> None:
        if self.is_stopping:
            raise AttemptFailedError("stop_requested", "the run was asked to stop")
        marks, begun_ms = [time.monotonic()], int(time.time() * 1000)
        self.failed.begin(
            query_id=step.query_id,
            starts=nested(decision.starts),
            ends=nested(step.ends),
            begun_ms=begun_ms,
        )
        reached = self.points.reached
        reached("begin:before")
        identity = self._begin()
        reached("begin:after")
        self.bus.emit(attempt_events.start(number, step, decision, identity))
        receipts = work.execute(identity, self.position, decision.floors)
        marks.append(time.monotonic())
        reached("all_acked:before")
        topic_ids = self._same_topics(step)
        facts = work.prepare_commit()
        reached("all_acked:after")
        ids = step.query_id, step.batch_id
        after = advanced(self.position, step.ends, *ids, topic_ids, facts.producers, step.run_id)
        after = replace(after, validate_first=facts.validate_first, is_reset=step.is_cut)
        attempt = AttemptRecord(
            number,
            identity,
            decision.starts,
            receipts,
            begun_ms,
            facts.refused,
            facts.dedup,
            facts.reads,
            facts.records_read,
            *self.measures.of_attempt(after.ends),
        )
        record = self.ledger.record(
            "attempt", after, attempt, failed=self.failed.listed, identity=identity
        )
        self._commit(identity, after, record, marks)
        committed = attempt_events.committed_event(
            step, decision, attempt, marks, self.ownership.last_offset + 1, facts.amounts
        )
        self.measures.committed(committed)
        self.bus.emit(committed)

    def _note(self, kind: Kind, position: Position, note: Mapping[str, Any] | None) -> None:
        def attempt(_number: int) -> None:
            self.failed.begin(kind=kind, begun_ms=int(time.time() * 1000))
            identity = self._begin()
            record = self.ledger.record(
                kind, position, note=note, failed=self.failed.listed, identity=identity
            )
            self._commit(identity, replace(position), record, [])

        self.points.kind = kind
        try:
            self._until_committed(position.batch_id, attempt)
        finally:
            self.points.kind = ""

    def _begin(self) -> Identity:
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        # Set before `begin`: if an interrupt arrives inside it, the next call must see that an
        # attempt may be open.
        self._open = self.coordinator.identity
        self._open = self.ownership.begin(deadline)
        return self._open

    def _commit(
        self, identity: Identity, after: Position, record: bytes, marks: list[float]
    ) -> None:
        """Write the ledger record, add the group offsets if they are on this cluster, and commit.

        Return if it is committed. Raise AttemptFailedError if it is certainly not, and FencedError
        if another instance took over. If the result of EndTxn is unknown and the ledger can't be
        read, the error leaves the attempt in doubt (`ownership.is_undecided`).
        """
        reached = self.points.reached
        reached("ledger_record:before")
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        offset = self.ledger.append(self.coordinator.produce, record, identity, deadline)
        reached("ledger_record:after")
        marks.append(time.monotonic())

        reached("offsets:before")
        offsets = self.group.in_transaction(after.ends)
        self.coordinator.commit_offsets(
            {tp: CommittedOffset(end) for tp, end in offsets.items()}, deadline
        )
        reached("offsets:after")
        marks.append(time.monotonic())

        if self.coordinator.commit(Deadline.after_ms(STEP_TIMEOUT_MS)) is Conclusion.IN_DOUBT:
            found = self.ownership.settle(identity, Deadline.after_ms(STEP_TIMEOUT_MS))
            if found is None or found.identity != identity:
                raise AttemptFailedError(
                    "commit_not_in_ledger",
                    "Kafka did not confirm the commit, and the ledger has no record of it",
                    hint="the micro-batch is retried automatically",
                )
        self.position = after  # set first: after an error below, the attempt counts as committed
        self.ownership.last, self.ownership.last_offset = identity, offset
        self._open = NO_IDENTITY
        self.failed.clear()
        self.group.committed(after.ends)
        reached("end_txn_answered:after")
        self.last_at = time.monotonic()
        marks.append(self.last_at)
