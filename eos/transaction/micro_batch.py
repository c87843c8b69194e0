"""One micro-batch, one transaction: the control flow of the whole product, on one screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from eos.deadline import Deadline
from eos.errors import AttemptFailedError, EosError, PromiseBrokenError, Recovery
from eos.faults import CrashPlan
from eos.observe import events
from eos.observe.bus import Bus
from eos.transaction.coordinator import Conclusion, Coordinator
from eos.transaction.ledger import (
    Attempt,
    Ledger,
    Position,
    advanced,
    require_same_topics,
    stamped,
)
from eos.transaction.port import CommittedOffset, Identity, TopicPartition
from eos.transaction.receipt import Receipt

ATTEMPTS_MAX = 3
# How long the driver's own requests of one step may take, retries included. The step that ends a
# transaction repeats itself at the next start if it runs out (rule R7), so this bounds a wait.
STEP_TIMEOUT_MS = 60_000

Offsets = Mapping[TopicPartition, int]
Execute = Callable[[Identity], Sequence[Receipt]]


@dataclass(frozen=True, slots=True)
class Step:
    """What Spark hands over: its name for the micro-batch, and what it reads."""

    query_id: str
    batch_id: int
    starts: Offsets
    ends: Offsets


@dataclass(slots=True)
class MicroBatches:
    """Runs micro-batches, one after the other, and knows how far the ledger has come."""

    coordinator: Coordinator
    ledger: Ledger
    position: Position
    bus: Bus
    crash: CrashPlan
    topic_ids: Callable[[], Mapping[str, str]]
    is_stopping: bool = field(default=False)
    _is_left_open: bool = field(default=False, init=False)
    _has_returned: bool = field(default=False, init=False)

    def run(self, step: Step, execute: Execute) -> None:
        """Returns once the micro-batch is committed, by this call or by one before it."""
        if self._has_returned:  # Spark calls again only after its commit log
            self.crash.reached("commit_log:after")
        if self._is_left_open:
            self._catch_up()
        if self._is_committed(step):
            self.bus.emit(events.MicroBatchSkipped(batch_id=step.batch_id))
            self._has_returned = True
            return
        self._require_adjacent(step)
        self._is_left_open = True  # until it is certain that nothing is
        for number in range(1, ATTEMPTS_MAX + 1):
            try:
                self._attempt(number, step, execute)
            except Exception as error:
                if not self._is_worth_another(number, step, error):
                    raise
            else:
                self._is_left_open = False
                self._has_returned = True
                self.crash.reached("commit_log:before")
                return

    def _is_worth_another(self, number: int, step: Step, error: Exception) -> bool:
        """Ends the failed attempt and says whether the micro-batch is redone.

        Rule R3: whatever happened, and even if nothing seems to have been sent, this attempt's
        identity is over. A task of it that still runs is refused from here on, so it can't join
        the next attempt. An abort that fails must not hide why there was one.
        """
        recovery = error.recovery if isinstance(error, EosError) else Recovery.STOP
        if recovery is Recovery.FENCED or self.coordinator.is_in_doubt:
            return False  # in doubt: never abort what may be committed, the ledger will tell
        if self._is_committed(step):
            return False  # whatever failed came after the end
        unended: Exception | None = None
        try:
            self.coordinator.abort(Deadline.after_ms(STEP_TIMEOUT_MS))
        except Exception as failed:  # noqa: BLE001 - any of them would hide `error`
            unended = failed
        will_redo = (
            recovery is Recovery.REDO
            and number < ATTEMPTS_MAX
            and unended is None
            and not self.is_stopping
        )
        self.bus.emit(events.AttemptFailed(step.batch_id, number, _reason(error), will_redo))
        if unended is not None:
            if isinstance(unended, EosError) and unended.recovery is Recovery.FENCED:
                raise unended from error  # that is why it failed
            self.bus.emit(events.Warned(f"the attempt could not be aborted: {_reason(unended)}"))
        return will_redo

    def require_owner(self) -> None:
        """Raises FencedError if another copy of this pipeline took over. Costs an empty attempt."""
        if not self.coordinator.is_in_doubt:
            deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
            self.coordinator.begin(deadline)
            self.coordinator.abort(deadline)

    def _catch_up(self) -> None:
        """The call before this one raised, at a point that nobody knows: its attempt may be open,
        in doubt, or committed without our having noted it. Ends it, and asks the ledger.
        """
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        is_in_doubt = self.coordinator.is_in_doubt
        if is_in_doubt:
            self.coordinator.settle(deadline)
        else:
            self.coordinator.abort(deadline)
        before, self.position = self.position, self._last(deadline)
        if is_in_doubt:
            self.coordinator.settled(committed=self.position != before)
        self._is_left_open = False

    def _attempt(self, number: int, step: Step, execute: Execute) -> None:
        if self.is_stopping:
            raise AttemptFailedError("the run was asked to stop")
        marks = [time.monotonic()]
        reached = self.crash.reached
        reached("begin:before")
        identity = self.coordinator.begin(Deadline.after_ms(STEP_TIMEOUT_MS))
        reached("begin:after")
        receipts = execute(identity)  # checked: every planned record acknowledged exactly once
        marks.append(time.monotonic())
        reached("all_acked:before")
        topic_ids = self.topic_ids()
        require_same_topics(self.position, topic_ids)
        after = advanced(self.position, step.ends, step.query_id, step.batch_id, topic_ids)
        reached("all_acked:after")

        reached("ledger_record:before")
        record = self.ledger.attempt_record(after, Attempt(number, identity, step.starts, receipts))
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        self.coordinator.produce({self.ledger.partition: stamped(record, identity)}, deadline)
        reached("ledger_record:after")
        marks.append(time.monotonic())

        reached("offsets:before")
        self.coordinator.commit_offsets(
            {tp: CommittedOffset(end) for tp, end in after.ends.items()}, deadline
        )
        reached("offsets:after")
        marks.append(time.monotonic())

        if self.coordinator.commit(Deadline.after_ms(STEP_TIMEOUT_MS)) is Conclusion.IN_DOUBT:
            self._settle(step)
        self.position = after  # first of all: what fails from here on must not redo it
        reached("end_txn_answered:after")
        marks.append(time.monotonic())
        self.bus.emit(_committed(number, step, receipts, marks))

    def _settle(self, step: Step) -> None:
        """EndTxn was sent and its outcome is unknown: the ledger knows (rules R4, R7).

        Our init with (id, epoch) waits until the broker has finished whatever it had begun. After
        that the ledger's end is final: no request of the attempt can still be on its way, since
        its epoch is over.
        """
        deadline = Deadline.after_ms(STEP_TIMEOUT_MS)
        self.coordinator.settle(deadline)
        found = self._last(deadline)
        is_committed = (found.query_id, found.batch_id) == (step.query_id, step.batch_id)
        self.coordinator.settled(is_committed)
        if not is_committed:
            raise AttemptFailedError("the commit's answer was lost, and the ledger lacks it")

    def _last(self, deadline: Deadline) -> Position:
        found = self.ledger.read_last(deadline)
        if found is None:
            raise PromiseBrokenError(
                f"the ledger {self.ledger.partition.topic!r} is empty, although this pipeline "
                "wrote to it",
                hint="somebody deleted its records or the topic, while the pipeline ran",
            )
        return found

    def _is_committed(self, step: Step) -> bool:
        """Spark repeats a micro-batch if it died between our EndTxn and its own commit log.

        Its number alone does not say so: a checkpoint that fell back (an older copy, a file lost
        with the machine's power) plans the same number again with another range.
        """
        position = self.position
        return (position.query_id, position.batch_id) == (step.query_id, step.batch_id) and all(
            position.ends.get(tp) == end for tp, end in step.ends.items()
        )

    def _require_adjacent(self, step: Step) -> None:
        """Each range must start where the ledger ends: anything else would lose or repeat."""
        for tp, start in step.starts.items():
            end = self.position.ends.get(tp)
            if end is not None and end != start:
                what = "repeat" if start < end else "lose"
                raise PromiseBrokenError(
                    f"micro-batch {step.batch_id} starts at offset {start} of {tp.topic}-"
                    f"{tp.partition}, but the ledger says that {end} is next: running it would "
                    f"{what} {abs(end - start)} offsets",
                    hint="was the checkpoint restored from a copy, or does another deployment "
                    "run this pipeline? Bring back the newest checkpoint, or move its folder "
                    "away: the next start goes on where the ledger ends",
                )
        for tp in sorted((step.ends.keys() - step.starts.keys()) & self.position.ends.keys()):
            raise PromiseBrokenError(
                f"micro-batch {step.batch_id} reads {tp.topic}-{tp.partition} from its beginning, "
                f"as a new partition, but the ledger says that {self.position.ends[tp]} is next",
                hint="was the checkpoint restored from a copy, or was the topic recreated?",
            )


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, EosError) else f"{type(error).__name__}: {error}"


def _committed(
    number: int, step: Step, receipts: Sequence[Receipt], marks: Sequence[float]
) -> events.MicroBatchCommitted:
    run_ms, ledger_ms, offsets_ms, end_ms = (
        (after - before) * 1000 for before, after in pairwise(marks)
    )
    return events.MicroBatchCommitted(
        batch_id=step.batch_id,
        attempt=number,
        records_in=sum(end - step.starts.get(tp, end) for tp, end in step.ends.items()),
        records_out=sum(receipt.records for receipt in receipts),
        bytes_out=sum(receipt.bytes for receipt in receipts),
        run_ms=run_ms,
        ledger_ms=ledger_ms,
        offsets_ms=offsets_ms,
        end_ms=end_ms,
    )
