"""One micro-batch, one transaction: the control flow of the whole product, on one screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Protocol

from eos.deadline import Deadline
from eos.errors import AttemptFailedError, DedupRetryError, EosError, PromiseBrokenError, Recovery
from eos.faults import Points
from eos.observe import events
from eos.observe.bus import Bus
from eos.transaction import group, ranges
from eos.transaction.attempt_events import committed_event, reason_of
from eos.transaction.claim import Claim
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.ledger import Ledger
from eos.transaction.ledger_record import (
    Attempt,
    Ends,
    Kind,
    Position,
    Record,
    Refused,
    advanced,
    nested,
)
from eos.transaction.port import NO_IDENTITY, CommittedOffset, Identity, TopicPartition
from eos.transaction.ranges import Decision, Step, require_same_topics
from eos.transaction.receipt import Receipt

ATTEMPTS_MAX = 3
FAILED_MAX, REASON_MAX = 20, 500  # what a ledger record tells of attempts that failed before it
# How long the driver's own requests of one step may take, retries included. The step that ends a
# transaction repeats itself at the next start if it runs out (rule R7), so this bounds a wait.
STEP_TIMEOUT_MS = 60_000
_COMPARE_TIMEOUT_MS = 5_000  # nothing waits for what only warns

# Given the attempt's identity, and the offsets below which rows of a partition are committed.
Execute = Callable[[Identity, Ends], Sequence[Receipt]]


class Source(Protocol):
    """What a micro-batch asks the cluster beside its own requests. `run.source` is the real one."""

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """Raises PromiseBrokenError for a topic that is gone."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> Ends: ...

    def group_offsets(
        self, partitions: Iterable[TopicPartition], deadline: Deadline | None = None
    ) -> Ends: ...


@dataclass(slots=True)
class MicroBatches:
    """Runs micro-batches, one after the other, and knows how far the ledger has come."""

    pipeline: str
    coordinator: Coordinator
    ledger: Ledger
    position: Position
    bus: Bus
    points: Points
    source: Source
    last: InitVar[Record | None] = None  # of the ledger; none: there is none yet
    # Asked once all is acknowledged: raises if a target is not the topic any more that it was.
    require_targets: Callable[[], object] = field(default=lambda: None)
    # What was not taken of the source, by the attempt that is all acknowledged: its record says it.
    refused: Callable[[], Refused] = field(default=dict)
    # Then, too: writes dedup's states behind that attempt, and tells what its record names them by,
    # and what it says of them. From here on it matters if the transaction commits, and only then.
    producers: Callable[[], tuple[str, Mapping[str, Any]]] = field(default=lambda: ("", {}))
    # In how many micro-batches dedup validates records before it writes them. The record keeps it
    # for the next run.
    validate_first: Callable[[], int] = field(default=lambda: 0)
    # How many source records were visible to it; None: nobody counted.
    records_read: Callable[[], int | None] = field(default=lambda: None)
    # And what it read beside the source, by name and version: what is redone for it reads the same.
    reads: Callable[[], Mapping[str, int]] = field(default=dict)
    is_stopping: bool = field(default=False)
    # Aborted attempts that no record of the ledger tells of yet: the next one does.
    failed: list[dict[str, Any]] = field(default_factory=list)
    last_at: float = field(default_factory=time.monotonic)  # of the last commit
    claim: Claim = field(init=False)
    _open: Identity = field(default=NO_IDENTITY, init=False)  # until it is certain that none is
    _tried: dict[str, Any] = field(default_factory=dict, init=False)  # by the latest attempt
    _is_compared: bool = field(default=True, init=False)  # the group, since the last commit
    _has_returned: bool = field(default=False, init=False)
    _recorded_at: int = field(default=-1, init=False)  # the offset of the last record of ours
    # A micro-batch, and what is written while the pipeline is idle, never at the same time.
    lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self, last: Record | None) -> None:
        self.claim = Claim(self.pipeline, self.coordinator, self.ledger)
        if last is not None:
            self.claim.last, self.claim.last_offset = last.identity, last.offset

    @property
    def is_new(self) -> bool:
        """Nothing is in the ledger yet."""
        return self.claim.last == NO_IDENTITY

    def run(
        self,
        step: Step,
        execute: Execute,
        skipped: Callable[[], None] = lambda: None,
        follow: Callable[[int], None] = lambda _offset: None,
    ) -> None:
        """Returns once the micro-batch is committed, by this call or by one before it: then
        `skipped` does what is left to do. `follow` writes what is no part of the transaction,
        behind it: it gets the offset of the ledger's record, and nothing newer begins before it
        has returned."""
        if self._has_returned:  # Spark calls again only after its commit log
            self.points.reached("commit_log:after")
        with self.lock:
            self._catch_up()
            self.compare_group()
            decision = self._decide(step)
            if decision.is_done:
                self.bus.emit(events.MicroBatchSkipped(batch_id=step.batch_id))
                skipped()
            else:
                self._redone(step.batch_id, lambda n: self._attempt(n, step, decision, execute))
                follow(self._recorded_at)
        if not decision.is_done:
            self.points.reached("commit_log:before")
        self._has_returned = True

    def note(
        self, kind: Kind, position: Position | None = None, note: Mapping[str, Any] | None = None
    ) -> None:
        """Writes a record of the ledger, with all group offsets, in a transaction of its own."""
        with self.lock:
            self._catch_up()
            self._note(kind, position or self.position, note)

    def note_stop(self, *, is_at_rest: bool) -> None:
        """The clean end. Whoever can't vouch for its checkpoint's being at rest leaves it out."""
        with self.lock:
            self._catch_up()
            here = self.position
            self._note("stop", here if is_at_rest else replace(here, checkpoint=""), None)

    def refresh(self, idle_ms: int) -> bool:
        """Rule R11: an empty attempt, if nothing was committed for so long and nothing is under
        way, so that neither group offsets nor ids expire. Returns whether there was one."""
        if not self.lock.acquire(blocking=False):
            return False  # a micro-batch is under way, and refreshes all by itself
        try:
            if time.monotonic() - self.last_at < idle_ms / 1000 or self.is_stopping:
                return False
            self._catch_up()
            self.compare_group()
            self._note("refresh", self.position, None)
            return True
        finally:
            self.lock.release()

    def is_at_rest(self, within_s: float) -> bool:
        """Whether nothing is under way, or not any more. With `is_stopping` set before, it stays
        so: what takes the lock afterwards begins no attempt."""
        if not self.lock.acquire(timeout=within_s):
            return False
        self.lock.release()  # at once: Spark's thread, which a stop waits for, may want it
        return True

    def require_owner(self) -> None:
        """Raises FencedError if another copy of this pipeline took over. Costs an empty attempt."""
        with self.lock:
            if not self.claim.is_undecided:
                deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
                self.claim.begin(deadline)
                self.claim.abort(deadline)

    def _decide(self, step: Step) -> Decision:
        unknown = ranges.unknown(self.position, step)
        earliest = self.source.earliest(unknown) if unknown else {}
        try:
            return ranges.decide(self.pipeline, self.position, step, earliest)
        except PromiseBrokenError:
            self._same_topics(step)  # in a recreated topic, offsets explain nothing
            raise

    def _same_topics(self, step: Step) -> Mapping[str, str]:
        """Return the ids of the source's topics. Raises if one was recreated."""
        topic_ids = self.source.topic_ids({tp.topic for tp in (*self.position.ends, *step.ends)})
        require_same_topics(self.pipeline, self.position, topic_ids)
        return topic_ids

    def _redone(self, batch_id: int, attempt: Callable[[int], None]) -> None:
        before = self.position
        for number in range(1, ATTEMPTS_MAX + 1):
            try:
                attempt(number)
            except Exception as error:
                is_committed = self.position is not before  # whatever failed came after the end
                if is_committed or not self._is_worth_another(number, batch_id, error):
                    raise
            else:
                return

    def _is_worth_another(self, number: int, batch_id: int, error: Exception) -> bool:
        """Ends the failed attempt and says whether the micro-batch is redone.

        Rule R3: whatever happened, and even if nothing seems to have been sent, this attempt's
        identity is over. A task of it that still runs is refused from here on, so it can't join
        the next attempt. An abort that fails must not hide why there was one.
        """
        recovery = error.recovery if isinstance(error, EosError) else Recovery.STOP
        if recovery is Recovery.FENCED or self.claim.is_undecided:
            if not self.claim.is_undecided:
                self._note_failed(batch_id, number, error)
            return False  # in doubt: never abort what may be committed, the ledger will tell
        self._note_failed(batch_id, number, error)
        unended: Exception | None = None
        try:
            self.claim.abort(Deadline.after_ms(STEP_TIMEOUT_MS))
        except Exception as failed:  # noqa: BLE001 - any of them would hide `error`
            unended = failed
        is_wanted = not self.is_stopping or bool(self.points.kind)  # the clean end's note is
        may_redo = recovery is Recovery.REDO and number < ATTEMPTS_MAX and unended is None
        will_redo, is_asked = may_redo and is_wanted, may_redo and not is_wanted
        if will_redo and isinstance(error, DedupRetryError):
            self.bus.emit(events.AttemptRetried(batch_id, number, reason_of(error)))
            return True
        self.bus.emit(events.AttemptFailed(batch_id, number, reason_of(error), will_redo, is_asked))
        if unended is not None:
            if _explains(unended, recovery):
                raise unended from error
            self.bus.emit(events.Warned(f"the attempt could not be aborted: {reason_of(unended)}"))
        return will_redo

    def _note_failed(self, batch_id: int, number: int, error: Exception) -> None:
        """Not of what was never begun, nor twice."""
        producer_id, epoch = self._open
        known = {(each["producer_id"], each["epoch"]) for each in self.failed}
        if self._open in (NO_IDENTITY, self.claim.last) or self._open in known:
            return
        if len(self.failed) >= FAILED_MAX:
            return  # a record is long overdue, and the run about to end
        told: dict[str, Any] = {"batch_id": batch_id, "number": number}
        told |= {"producer_id": producer_id, "epoch": epoch}
        told |= {"at_ms": int(time.time() * 1000), "reason": reason_of(error)[:REASON_MAX]}
        code = error.code if isinstance(error, EosError) else type(error).__name__
        self.failed.append({**self._tried, **told, "error": code})

    def _catch_up(self) -> None:
        """The call before this one raised, at a point that nobody knows: its attempt may be open,
        in doubt, or committed without our having noted it. Ends it, and asks the ledger.
        """
        if self._open == NO_IDENTITY:
            return
        known = self.claim.last
        found = self.claim.conclude(self._open, Deadline.after_ms(STEP_TIMEOUT_MS))
        if found is not None and found.identity != known:
            # Of the tables we know more: they are written behind the record that we know.
            self.position = replace(found.position, tables=self.position.tables)
        self._open = NO_IDENTITY

    def _attempt(self, number: int, step: Step, decision: Decision, execute: Execute) -> None:
        if self.is_stopping:
            raise AttemptFailedError("the run was asked to stop")
        marks, begun_ms = [time.monotonic()], int(time.time() * 1000)
        self._tried = {
            "query_id": step.query_id,
            "starts": nested(decision.starts),
            "ends": nested(step.ends),
            "begun_ms": begun_ms,
        }
        reached = self.points.reached
        reached("begin:before")
        identity = self._begin()
        reached("begin:after")
        receipts = execute(identity, decision.floors)  # every planned record acknowledged once
        marks.append(time.monotonic())
        reached("all_acked:before")
        self.require_targets()
        topic_ids = self._same_topics(step)
        producers, dedup = self.producers()
        after = advanced(
            self.position, step.ends, step.query_id, step.batch_id, topic_ids, producers
        )
        after = replace(after, validate_first=self.validate_first())
        reached("all_acked:after")
        refused, reads = self.refused(), self.reads()
        count = self.records_read()
        attempt = Attempt(
            number, identity, decision.starts, receipts, begun_ms, refused, dedup, reads, count
        )
        record = self.ledger.record(
            "attempt", after, attempt, failed=self.failed, identity=identity
        )
        self._commit(identity, after, record, marks)
        self.bus.emit(committed_event(number, step, decision, receipts, count, marks))

    def _note(self, kind: Kind, position: Position, note: Mapping[str, Any] | None) -> None:
        def attempt(_number: int) -> None:
            self._tried = {"kind": kind, "begun_ms": int(time.time() * 1000)}
            identity = self._begin()
            record = self.ledger.record(
                kind, position, note=note, failed=self.failed, identity=identity
            )
            self._commit(identity, replace(position), record, [])

        self.points.kind = kind
        try:
            self._redone(position.batch_id, attempt)
        finally:
            self.points.kind = ""

    def _begin(self) -> Identity:
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        # Before it is known: an interrupt inside must leave a mark, too.
        self._open = self.coordinator.identity
        self._open = self.claim.begin(deadline)
        return self._open

    def _commit(
        self, identity: Identity, after: Position, record: bytes, marks: list[float]
    ) -> None:
        """The last three steps of a transaction, in this order."""
        reached = self.points.reached
        reached("ledger_record:before")
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        send = self.coordinator.produce
        self._recorded_at = self.ledger.append(send, record, identity, deadline)
        reached("ledger_record:after")
        marks.append(time.monotonic())

        reached("offsets:before")
        self.coordinator.commit_offsets(
            {tp: CommittedOffset(end) for tp, end in after.ends.items()}, deadline
        )
        reached("offsets:after")
        marks.append(time.monotonic())

        if self.coordinator.commit(Deadline.after_ms(STEP_TIMEOUT_MS)) is Conclusion.IN_DOUBT:
            found = self.claim.settle(identity, Deadline.after_ms(STEP_TIMEOUT_MS))
            if found is None or found.identity != identity:
                raise AttemptFailedError("the commit's answer was lost, and the ledger lacks it")
        self.position = after  # first of all: what fails from here on must not redo it
        self.claim.last, self.claim.last_offset = identity, self._recorded_at
        self._open = NO_IDENTITY
        self.failed = []  # this record told of them
        self._is_compared = False
        reached("end_txn_answered:after")
        self.last_at = time.monotonic()
        marks.append(self.last_at)

    def compare_group(self) -> None:
        """Tells if somebody else moved the group's offsets since our last commit. The ledger is
        the truth, and the next commit puts them right; but lag tools are wrong until then."""
        if self._is_compared:
            return
        self._is_compared = True
        try:
            deadline = Deadline.after_ms(_COMPARE_TIMEOUT_MS)
            found = self.source.group_offsets(self.position.ends, deadline)
        except EosError as error:
            self.bus.emit(events.Warned(f"the group's offsets can't be compared: {error.message}"))
            return
        told = group.told(group.differing(self.position.ends, found))
        if told:
            self.bus.emit(events.Warned(f"{told}; the next commit puts them right"))


def _explains(unended: Exception, recovery: Recovery) -> bool:
    """Whether the failure of an abort is why the attempt failed, or ends the run although the
    attempt's own error does not: another copy took over, or the ledger lost records."""
    if not isinstance(unended, EosError):
        return False
    is_broken = isinstance(unended, PromiseBrokenError) and recovery is not Recovery.STOP
    return unended.recovery is Recovery.FENCED or is_broken
