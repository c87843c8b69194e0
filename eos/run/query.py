"""The function that Spark calls for each micro-batch (`foreachBatch`), and why its query failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from eos.audit.updater import NO_AUDIT
from eos.checkpoint.offset_log import Checkpoint, Ranges
from eos.deadline import Deadline
from eos.errors import EosError, FencedError, PromiseBrokenError, UnavailableError, about
from eos.ledger.ranges import PlannedBatch
from eos.micro_batch.bounds import BoundsReachedError
from eos.micro_batch.java_client_errors import source_refusal
from eos.micro_batch.stages import Stages
from eos.micro_batch.task_errors import data_loss
from eos.micro_batch.work import MicroBatchWork
from eos.observe import events
from eos.read.planned_offsets import require_planned
from eos.read.rejected_records import RejectedRecords
from eos.spark.failure import Failure
from eos.startup.resume_position import require_new_whole
from eos.startup.stateful_pipeline import state_refusal
from eos.transaction.micro_batch import MicroBatches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.audit.updater import Audit

_CAUSE_TIMEOUT_MS = 120_000


class PipelineQuery:
    """The `foreachBatch` function of a run. It commits each micro-batch that Spark plans.

    `error` is the first exception of a micro-batch: Spark would report its text only.
    """

    def __init__(
        self,
        stages: Stages,
        checkpoint: Checkpoint,
        micro_batches: MicroBatches,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self.stages = stages
        self._name = stages.plan.names.pipeline
        self._micro_batches = micro_batches
        self._audit = audit
        self._query_id = ""
        self.checkpoint = checkpoint
        self.planned = Ranges({}, {})  # of the newest micro-batch
        # number of rejected records, by rule and action
        self.refused: Counter[tuple[str, str]] = Counter()
        self.error: Exception | None = None
        self.is_at_bounds = False  # a run with `--until` has read all of its records

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._run(frame, batch_id)
        except BoundsReachedError:
            self.is_at_bounds = True
            raise
        except Exception as error:
            self.error = self.error or error
            raise

    def _run(self, frame: DataFrame, batch_id: int) -> None:
        stages = self.stages
        planned = self._ranges(batch_id)
        if not stages.plan.is_dataframe:
            self._require_planned(batch_id, planned)
        self.planned = self._cut(planned)
        for ranges in self._parts(self.planned):
            step = PlannedBatch(
                self._query_id,
                batch_id,
                ranges.starts,
                ranges.ends,
                stages.plan.is_stateful,
                is_cut=ranges != planned,
                is_opaque=stages.plan.is_dataframe,
            )
            self._run_step(step, MicroBatchWork(stages, frame, batch_id, ranges))

    def _run_step(self, step: PlannedBatch, work: MicroBatchWork) -> None:
        stages, dedup = self.stages, self.stages.dedup
        self._audit.require()
        if stages.tables is not None:
            stages.tables.require_even()
        if dedup is not None:
            dedup.forget_attempts()
        self._micro_batches.run(step, work)
        self._audit.committed()
        self._report_refused(step.batch_id, work.refused)
        if dedup is not None:
            dedup.committed(step.batch_id, self._micro_batches.bus)

    def _ranges(self, batch_id: int) -> Ranges:
        try:
            self._query_id = self._query_id or self.checkpoint.query_id()
            return self.checkpoint.ranges(batch_id)
        except EosError as error:
            raise about(self._name, error) from error

    def _cut(self, planned: Ranges) -> Ranges:
        """Return the part of Spark's plan that this run reads."""
        bounds = self.stages.bounds
        if bounds is None:
            return planned
        found = bounds.cut(planned)
        if found != planned:
            bounds.require_more(found, self._micro_batches.position.ends)
        return found

    def _parts(self, ranges: Ranges) -> Iterator[Ranges]:
        """Yield the ranges that one transaction after another commits: with a limit in bytes, each
        up to a later end. The last one has all of them."""
        limit = self.stages.byte_limit
        while limit is not None:
            ends = limit.ends(ranges.remaining(self._micro_batches.position.ends))
            if all(end == ranges.ends[tp] for tp, end in ends.items()):
                break
            yield Ranges(ranges.starts, {**ranges.ends, **ends})
        yield ranges

    def _require_planned(self, batch_id: int, found: Ranges) -> None:
        location = self.checkpoint.location
        try:
            require_planned(self.stages.spark, self._name, location, batch_id, found)
        except UnavailableError:
            # If another instance took over, raise FencedError instead, which ends this run for
            # good. After UnavailableError, a supervisor would restart it, and it would fence the
            # new owner.
            self._micro_batches.require_owner()
            raise

    def _report_refused(self, batch_id: int, refused: Sequence[RejectedRecords]) -> None:
        """Count and report the records that the committed attempt rejected. An aborted attempt is
        not counted, since the next attempt rejects the same records again."""
        for each in refused:
            self.refused[each.rule, each.answer] += each.records
            self._micro_batches.bus.emit(events.RecordsRefused(batch_id, *astuple(each)))


def cause_of(query: PipelineQuery, error: Exception, batches: MicroBatches) -> EosError:
    """Return the error to raise for a query that failed.

    If another instance writes to the same checkpoint, Spark may fail before Kafka rejects a
    request of this run. So the owner of the transactional id is checked first. Then the source
    is compared with the ledger: Spark's message about lost records or topics names neither the
    ledger's offsets nor a remedy.
    """
    name = query.stages.plan.names.pipeline
    if isinstance(query.error, EosError):
        # A missing file of Spark's state fails each retry, and that error has its own remedy.
        return state_refusal(name, Failure.of(query.error.__cause__)) or query.error
    try:
        batches.require_owner()
        query.stages.source.require_unchanged(batches.position)
        deadline = Deadline.after_ms(_CAUSE_TIMEOUT_MS)
        require_new_whole(
            query.stages.plan, query.stages.source, batches.position, query.checkpoint, deadline
        )
    except (FencedError, PromiseBrokenError) as cause:
        return cause
    except EosError:
        pass  # the check failed; the query's own error says more
    ended = query.error or error
    failure = Failure.of(ended)
    lines = [line for line in failure.text.splitlines() if line.strip()]
    reason = lines[0][:500] if lines else type(ended).__name__
    known = data_loss(failure) or source_refusal(failure) or state_refusal(name, failure)
    return (
        known
        or late_worker(name, failure)
        or UnavailableError(
            "query_failed",
            f"{name}: the query failed: {reason}",
            hint="nothing is lost: see Spark's log for the cause, then start again",
        )
    )


def late_worker(name: str, failure: Failure) -> UnavailableError | None:
    """Return the error for a worker of a function with state that Spark gave up waiting for."""
    if all(link.line != "Python worker failed to connect back." for link in failure.links):
        return None
    return UnavailableError(
        "python_worker_late",
        f"{name}: a Python worker did not start within the 10 s that Spark waits for it",
        hint="nothing is lost: the machine was too busy, or memory is short; start again",
    )
