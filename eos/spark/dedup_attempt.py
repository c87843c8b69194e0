"""Dedup of one attempt: it validates the records, and saves the producers' new states.

Before an attempt commits, this check ensures that dedup accepted all records that were written:

| scope and mode | check |
| --- | --- |
| `partition` | a task holds a row until it has the row's verdict |
| `producer`, VALIDATE_FIRST | the job that writes reads as many rows as were validated before |
| `producer`, VALIDATE_AFTER | as many rows were validated as were read, and none is dropped |

In addition, all records of the attempt's offset range must be validated. Spark prunes rows that no
sink reads, so the driver has those rows validated by another job. Python tasks read all records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eos.checkpoint.offset_log import Ranges
from eos.dedup.buckets import SHARDS
from eos.dedup.optimistic_pass import DeferredCheck, OptimisticPass
from eos.dedup.policy import NAMES, rule_of
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.record_position import require_positions
from eos.dedup.stage import DedupStage
from eos.dedup.stamp_columns import StampRules
from eos.dedup.validation_mode import VALIDATE_FIRST_MAX, ValidationMode, left_after
from eos.dedup.verdict_lookup import VerdictLookup
from eos.errors import (
    AttemptFailedError,
    DedupRetryError,
    EosError,
    RecordRefusedError,
    TransformError,
)
from eos.faults import CrashPlan
from eos.kafka.api import TopicPartition
from eos.ledger.record import Ends
from eos.read.rejected_records import RejectedRecords
from eos.spark.dedup_columns import (
    accepted,
    accepted_and_dead,
    counted,
    not_accepted,
    require_counted,
    validating,
)
from eos.spark.header_validation import HeaderValidation
from eos.spark.tasks import nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.dedup.state_attempt import StateAttempt, VersionRecord

    Collect = Callable[[DataFrame], Sequence[Any]]
    Rows = Callable[[], DataFrame]

Verdicts = DedupStage | VerdictLookup | OptimisticPass
_RETRY = "Aborting this attempt and retrying with validation before writing"


@dataclass(slots=True)
class DedupAttempt:
    """Dedup of one attempt.

    `rules` has the dedup policy. `states` has the producers' states before the attempt, and the
    reports of its tasks. `verdicts` returns the verdict code of each row, in every task that reads
    rows. `micro_batches_left` counts the micro-batches, from this one on, that validate records
    before writing.
    """

    rules: StampRules
    states: StateAttempt
    verdicts: Verdicts
    crash: CrashPlan
    parallelism: int
    micro_batches_left: int
    is_validated: bool = field(init=False)  # all written records were validated
    # Number of records by verdict that were written although validation then rejected them.
    wrongly_written: Mapping[str, int] = field(default_factory=dict, init=False)
    version: VersionRecord | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.is_validated = not isinstance(self.verdicts, OptimisticPass)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the source rows that dedup accepts, for the job that writes them."""
        if self.accepts_all:
            return counted(frame, self.rules)
        return accepted(frame, self.rules, self.verdicts)

    @property
    def validation(self) -> HeaderValidation:
        """Return the dedup function for Python tasks that read the source's records themselves."""
        return HeaderValidation(self.verdicts, not_accepted(self.rules), self.rules.header_names)

    def accepted_and_dead(self, frame: DataFrame) -> DataFrame:
        """Return the attempt's accepted rows and dead letters, for the job of the dead letters."""
        return accepted_and_dead(frame, self.rules, self.verdicts)

    def accepted_again(self, frame: DataFrame) -> DataFrame:
        """Return the accepted rows, evaluated again after the attempt has its last verdict."""
        is_stage = isinstance(self.verdicts, DedupStage)
        return accepted(frame, self.rules, self.verdicts if is_stage else self.states.lookup())

    @property
    def accepts_all(self) -> bool:
        """Return whether an earlier job validated all records and each got `appended`."""
        return isinstance(self.verdicts, VerdictLookup) and not self.verdicts.files

    @property
    def validators(self) -> int:
        """Return how many writing tasks validate records after they have written.

        It is 0 if records are validated before the write."""
        is_after = isinstance(self.verdicts, OptimisticPass)
        return min(self.parallelism, SHARDS) if is_after else 0

    def after_write(self, tasks: int) -> Callable[[int], None]:
        """Return the function that each writing task calls, with its number, after it has written.

        If the attempt writes before it validates, the function validates records. Each task with a
        number below `tasks` validates a part of the producers. Otherwise the function does nothing.
        """
        stage = self.states.stage
        if not isinstance(self.verdicts, OptimisticPass):
            return nothing
        assert isinstance(stage, ProducerScopeStage), "only this stage validates after the write"
        return DeferredCheck(stage, self.verdicts, tasks)

    def complete(
        self, job: DataFrame, frame: DataFrame, ranges: Ranges, floors: Ends
    ) -> Sequence[RejectedRecords]:
        """Complete the validation after Spark's job. Return dedup's dead letters, counted by rule.

        Raise DedupRetryError if a written record was not validated, or should not be written. Raise
        AttemptFailedError if the source lost records since they were validated.
        """
        if not isinstance(self.verdicts, VerdictLookup):
            starts = {**ranges.starts, **floors}
            read = {tp for tp, end in ranges.ends.items() if end > starts.get(tp, 0)}
            self._pass_unread(frame, read)
        elif self.accepts_all:  # otherwise each task has looked verdicts up and compared counts
            require_counted(job, frame, self.verdicts)
        return self._completed(ranges)

    def complete_in_python(self, records_read: int, ranges: Ranges) -> Sequence[RejectedRecords]:
        """Complete the validation after Python tasks that read and validated all records.

        `records_read` is how many records they read. Raise if not as many were validated."""
        self.states.lookup().require_total(records_read)
        return self._completed(ranges)

    def _completed(self, ranges: Ranges) -> Sequence[RejectedRecords]:
        require_positions(ranges.ends)
        if isinstance(self.verdicts, OptimisticPass):
            self._require_valid(self.verdicts)
        return tuple(
            RejectedRecords(rule_of(each[0]), "dead_letter", *each[1:])
            for each in self.states.dead()
        )

    def _require_valid(self, verdicts: OptimisticPass) -> None:
        """Raise DedupRetryError unless all records that were written before validation are valid.

        In each partition as many must be validated as were read, and none may have to be dropped.
        Missing verdicts can't be added now, since the source may have lost records meanwhile.
        """
        self.crash.reached("judging:before")
        validated, passed = self.states.validated(), verdicts.spool().counts
        if passed != validated:
            both = sorted({*passed, *validated})
            differ = [tp for tp in both if passed.get(tp) != validated.get(tp)]
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in differ)
            validated_count, read_count = validated.total(), passed.total()
            raise DedupRetryError(
                "dedup_rows_pruned",
                f"dedup validated {validated_count:,} of {read_count:,} records that were read, "
                f"because Spark pruned rows of {names} that no sink reads. {_RETRY}",
            )
        verdicts.clear()
        self.is_validated = True
        self.crash.reached("judging:after")
        wrong = {name: n for name, n in self.states.counts().items() if self._needs_retry(name)}
        self.wrongly_written = wrong
        if wrong:
            counts = ", ".join(f"{count:,} {name}" for name, count in sorted(wrong.items()))
            raise DedupRetryError(
                "duplicates_written",
                f"{counts} records were written before dedup validated them. {_RETRY}. The next "
                f"{VALIDATE_FIRST_MAX} micro-batches validate before writing, too",
            )

    def _pass_unread(self, frame: DataFrame, partitions: AbstractSet[TopicPartition]) -> None:
        """Validate the rows of those partitions for which no task has reported any record.

        They have no rows, or Spark pruned rows that no sink reads, for instance because a filter
        rejects all of them. Dedup must validate pruned rows, too.
        """
        if isinstance(self.verdicts, OptimisticPass):
            passed = self.verdicts.spool().counts
        else:
            passed = self.states.validated()
        unread = partitions - passed.keys()
        if unread:
            named = [
                f"(topic = '{tp.topic}' AND partition = {tp.partition})" for tp in sorted(unread)
            ]
            validate(frame.where(" OR ".join(named)), self.rules, self.verdicts)

    def retriable(self, error: EosError) -> EosError:
        """Return the error to raise for a failed attempt. Before validation, it allows a retry.

        A rule or a step may have failed on a row that dedup would drop. The retry validates first,
        so the step gets only accepted rows. If it fails again, the error is final.
        """
        if not self.is_validated and isinstance(error, RecordRefusedError | TransformError):
            message = f"{error.message} (dedup had not validated all records yet)"
            return AttemptFailedError("record_unvalidated", message, hint=error.hint)
        return error

    @property
    def records_read(self) -> int:
        """Return how many source records the attempt read, which is the number of verdicts."""
        return sum(self.states.counts().values())

    def commit_states(self) -> VersionRecord:
        """Write the producers' new states, and return their version for the ledger's record."""
        self.version = self.states.commit(self.crash.reached)
        return self.version

    @property
    def validate_first(self) -> int:
        """Return how many of the next micro-batches validate records before they write them.

        The ledger record contains it."""
        assert self.version is not None, "commit_states() comes first"
        if not self.rules.policy.window:
            return 0  # with `scope: partition` every micro-batch does, so there is no count
        has_failed = any(map(self._needs_retry, self.version.summary["verdicts"]))
        return left_after(self.micro_batches_left, has_failed=has_failed)

    @property
    def has_all_verdicts(self) -> bool:
        """Return whether a retry can use the verdicts of this attempt.

        It can if all records were validated, and some of the written ones were rejected."""
        return bool(self.wrongly_written)

    def _needs_retry(self, verdict: str) -> bool:
        """Return whether the attempt fails if it wrote a record of this verdict before validation.

        It fails if the record is not accepted, or if a column of the rows shows the verdict."""
        code = NAMES.index(verdict)
        return code in not_accepted(self.rules) or (code > 0 and bool(self.rules.verdict))


def verdicts_of(
    mode: ValidationMode,
    rows: Rows,
    rules: StampRules,
    states: StateAttempt,
    collect: Collect,
    tasks: int,
) -> Verdicts:
    """Return the function that tasks call to get the verdict code of each row.

    With VALIDATE_FIRST and `scope: producer`, this runs a Spark job that validates all rows first.
    `tasks` is its number of tasks; with 0, one task does it without a shuffle.
    """
    if mode is ValidationMode.VALIDATE_AFTER:
        return states.optimistic_pass()
    if isinstance(states.stage, DedupStage):
        return states.stage
    collect(validating(rows(), rules, states.stage, tasks))
    return states.lookup()


def validate(frame: DataFrame, rules: StampRules, verdicts: Verdicts) -> None:
    """Run a Spark job that validates the frame's rows, for rows that no sink reads."""
    accepted(frame, rules, verdicts).selectExpr("count(offset)").collect()
