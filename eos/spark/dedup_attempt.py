"""How does each attempt of a run validate its records with dedup, and save producers' states?

Records are validated before, while or after they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from eos.checkpoint.offset_log import Ranges
from eos.dedup.buckets import SHARDS
from eos.dedup.optimistic_pass import DeferredCheck, OptimisticPass
from eos.dedup.policy import NAMES, OPTIONS, rule_of
from eos.dedup.producer_scope_stage import ProducerScopeStage
from eos.dedup.record_position import require_positions
from eos.dedup.stage import DedupStage
from eos.dedup.stamp_columns import StampRules
from eos.dedup.verdict_lookup import VerdictLookup
from eos.errors import (
    AttemptFailedError,
    DedupRetryError,
    EosError,
    RecordRefusedError,
    TransformError,
    UnavailableError,
    UsageError,
)
from eos.faults import CrashPlan
from eos.kafka.api import TopicPartition
from eos.ledger.record import Ends, Position
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.read.decode import RejectedRecords
from eos.spark.dedup_columns import (
    VerdictSource,
    counted,
    in_one_pass,
    judging,
    left_out,
    refused,
    require_counted,
    taken,
)
from eos.spark.fused_dedup import FusedDedup
from eos.spark.tasks import nothing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eos.dedup.state_versions import StateAttempt, StateVersions, VersionRecord

    Collect = Callable[[DataFrame], Sequence[Any]]

# An upstream that resends once probably resends again, and a retry costs more than to validate
# first. So after a micro-batch with records that dedup left out, or that failed before its records
# were validated, the next micro-batches validate first.
LOOKS_FIRST = 8
_RETRY = "Aborting this attempt and retrying with validation before writing"
_PRUNED = "Spark pruned rows that no sink reads"


def deduplicating(planned: Plan, crash: CrashPlan) -> DedupAttempts | None:
    """Return the dedup of a run, or None if the pipeline declares none."""
    if planned.dedup is None:
        return None
    generations = generations_of(planned, planned.dedup)
    return DedupAttempts(planned.dedup, generations, crash, planned.parallelism)


def generations_of(planned: Plan, dedup: StampRules) -> StateVersions:
    """Return the versions of the producers' states. Raise UsageError for a remote state root."""
    names = planned.names
    if not names.producers:
        raise UsageError(
            "dedup_state_remote",
            f"{names.pipeline}: `dedup` needs a state root that is a folder of a local or mounted "
            f"disk, but checkpoints are stored in {names.checkpoints}",
            hint="the library that commits the producers' states can't exclude a second writer in "
            "an object store; set `state.root` to a folder that is shared with the executors",
        )
    # Imported late: it takes a tenth of a second, and a run without dedup does not need it.
    from eos.dedup.state_table import ProducersTable
    from eos.dedup.state_versions import StateVersions

    table = ProducersTable(Path(names.producers), names.pipeline)
    topics = planned.source_topics
    topic = topics[0] if len(topics) == 1 else ""
    return StateVersions(names.pipeline, table, dedup.policy, dedup.reading, topic)


class DedupAttempts:
    """Dedup of one run, for one attempt after the other.

    Most attempts write records before all of them are validated. Validating first takes longer, and
    hardly ever is a record left out. If one is, the attempt is aborted, and its retry leaves that
    record out.
    """

    def __init__(
        self, dedup: StampRules, generations: StateVersions, crash: CrashPlan, parallelism: int
    ) -> None:
        self._dedup = dedup
        self._generations = generations
        self._crash = crash
        self._parallelism = parallelism
        self._asked = dedup  # the rules of the latest attempt
        self._stage: DedupStage | VerdictLookup | OptimisticPass
        self._opened: StateAttempt | None = None  # of the latest attempt
        self._done: VersionRecord | None = None
        # The verdicts of an aborted attempt that validated after writing. The retry uses them.
        self._found: StateAttempt | None = None
        self._is_again = False  # the current attempt is a retry of its micro-batch
        self._is_unjudged = False  # the attempt may write records that dedup must leave out
        self._looks = 0  # how many more micro-batches validate before writing

    def require(self, position: Position) -> None:
        """Resume from the ledger's position. Raise if the producers' states of that position can't
        be read, or were made with other rules."""
        self._generations.require(position.producers)
        self._looks = position.validate_first

    def next_micro_batch(self) -> None:
        """Begin a new micro-batch: forget the verdicts of the previous one."""
        self._found, self._is_again = None, False

    def begin(
        self, frame: DataFrame, position: Position, collect: Collect, *, in_one_task: bool
    ) -> None:
        """Begin an attempt with these rows: all rows of its range, since a missing row would look
        like a gap."""
        self._done = None
        found, self._found = self._found, None
        accepts_gap = position.accepts_gap
        opened = found or self._generations.begun(position.producers, accepts_gap=accepts_gap)
        self._opened = opened
        # If an operator accepted gaps for this micro-batch, those records become no dead letters.
        self._asked = replace(self._dedup, policy=opened.stage.policy)
        # 0: one task validates all rows, without a shuffle.
        tasks = 0 if in_one_task else self._parallelism
        if self._is_again and self._is_unjudged:  # the attempt before failed before its validation
            self._looks = LOOKS_FIRST
        # Writing before validation saves no time if one task with few rows validates them itself.
        gains = bool(tasks) or isinstance(opened.stage, ProducerScopeStage)
        is_first = bool(self._looks) or self._dedup.validates_first
        self._is_unjudged = gains and not is_first and not self._is_again
        self._is_again = True
        if found is not None:
            self._stage = found.lookup()
        elif self._is_unjudged:
            self._stage = _trusting(opened)
        else:
            self._stage = _stage(frame, self._asked, opened, collect, tasks)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return the accepted rows."""
        if _is_whole(self._stage):
            return counted(frame, self._asked)
        return taken(frame, self._asked, self._stage)

    def in_one_pass(self, plan: Plan, frame: DataFrame) -> FusedDedup | None:
        """Return a stage that validates and encodes rows in one pass of Python. None if the plan
        has a step between the two, or if no row needs a verdict."""
        if _is_whole(self._stage):
            return None
        return in_one_pass(plan, self._asked, self._stage, frame)

    def judge_all(
        self, job: DataFrame, frame: DataFrame, ranges: Ranges, floors: Ends
    ) -> Sequence[RejectedRecords]:
        """Complete the validation after the job, and return the records that become dead letters.

        Spark prunes rows that no sink reads, such as the rows before a filter that rejects all.
        Dedup must validate those rows, too, and does so here. Raise DedupRetryError if a written
        record must be left out, and AttemptFailedError if the source lost records meanwhile.
        """
        require_positions(ranges.ends)
        if _is_whole(self._stage):
            require_counted(job, frame, self._stage)
        starts = {**ranges.starts, **floors}
        read = [tp for tp, end in ranges.ends.items() if end > starts.get(tp, 0)]
        opened = self._begun()
        if self._is_unjudged:
            self._crash.reached("judging:before")
        if isinstance(self._stage, OptimisticPass):
            self._judge_behind(frame, opened, self._stage, read)
        elif isinstance(self._stage, DedupStage):
            self._judge_missing(frame, opened, self._stage, read)
        if self._is_unjudged:
            self._is_unjudged = False
            self._crash.reached("judging:after")
            self._require_even(opened)
        return tuple(
            RejectedRecords(rule_of(each[0]), "dead_letter", *each[1:]) for each in opened.dead()
        )

    @property
    def records_read(self) -> int:
        """How many records the attempt read: each of them has a verdict."""
        return sum(self._begun().counts().values())

    def _judge_missing(
        self,
        frame: DataFrame,
        opened: StateAttempt,
        stage: DedupStage,
        read: Iterable[TopicPartition],
    ) -> None:
        """Validate the rows of partitions that no task has reported.

        Raise DedupRetryError if some of these rows may have been written. A step that does not read
        its rows to the end passes rows without a report. Such rows may since have been lost from
        the source, so validating the rest now proves nothing about them.
        """
        missing = opened.missing(read)
        _judge(frame, self._asked, stage, missing)
        found = sorted(set(missing) - set(opened.missing(missing)))
        if found and stage.trusts:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in found)
            raise DedupRetryError(
                "dedup_rows_pruned",
                f"dedup did not validate records of {names}, because {_PRUNED}. {_RETRY}",
            )

    def _judge_behind(
        self,
        frame: DataFrame,
        opened: StateAttempt,
        stage: OptimisticPass,
        read: Iterable[TopicPartition],
    ) -> None:
        """Complete the validation of an attempt that validated after writing. Raise DedupRetryError
        if more or fewer records were written than validated."""
        _judge(frame, self._asked, stage, set(read) - stage.left().counts.keys())
        passed, found = stage.left().counts, opened.lookup()
        if passed != found.counts:
            read_count, validated = sum(passed.values()), sum(found.counts.values())
            raise DedupRetryError(
                "dedup_rows_pruned",
                f"dedup validated {validated:,} of {read_count:,} records that were read, because "
                f"{_PRUNED}. {_RETRY}",
            )
        stage.clear()

    def _require_even(self, opened: StateAttempt) -> None:
        """Raise DedupRetryError if dedup leaves out a row that was written.

        If the rows were validated after writing, the retry reuses the verdicts.
        """
        odd = {name: count for name, count in opened.counts().items() if self._is_odd(name)}
        if odd:
            # Tasks that validate while they read do so again in the retry.
            self._found = opened if isinstance(self._stage, OptimisticPass) else None
            counts = ", ".join(f"{count:,} {name}" for name, count in sorted(odd.items()))
            raise DedupRetryError(
                "duplicates_written",
                f"{counts} records were written before dedup validated them. {_RETRY}. The "
                f"next {LOOKS_FIRST} micro-batches validate before writing, too",
            )

    @property
    def judges(self) -> int:
        """How many writing tasks validate records after they have written."""
        if self._is_unjudged and isinstance(self._stage, OptimisticPass):
            return min(self._parallelism, SHARDS)
        return 0

    def behind(self, tasks: int) -> Callable[[int], None]:
        """Return the function that each writing task calls at its end.

        The first `tasks` of them validate records there, if this attempt validates after writing.
        """
        stage, passing = self._begun().stage, self._stage
        if not self._is_unjudged or not isinstance(passing, OptimisticPass):
            return nothing
        assert isinstance(stage, ProducerScopeStage), "no other stage leaves stamps"
        return DeferredCheck(stage, passing, tasks)

    def doubted(self, error: EosError) -> EosError:
        """Return the error to raise for a failed attempt: one to retry if validation is incomplete.

        A rule or a step may have failed on a row that dedup leaves out. The retry validates first,
        so the same error is final there if the row is accepted.
        """
        if self._is_unjudged and isinstance(error, RecordRefusedError | TransformError):
            message = f"{error.message} (dedup had not validated all records yet)"
            return AttemptFailedError("record_unvalidated", message, hint=error.hint)
        return error

    def _is_odd(self, verdict: str) -> bool:
        """Return whether records with this verdict need another treatment than accepted ones."""
        code = NAMES.index(verdict)
        return code in left_out(self._asked) or (code > 0 and bool(self._asked.verdict))

    def refused(self, frame: DataFrame) -> DataFrame:
        """Return the attempt's accepted rows and its dead letters, evaluated again."""
        return refused(frame, self._asked, self._stage)

    def _begun(self) -> StateAttempt:
        assert self._opened is not None, "begun() comes first"
        return self._opened

    def producers(self) -> VersionRecord:
        """Write the producers' new states, and return their version for the ledger's record."""
        self._done = self._begun().commit(self._crash.reached)
        return self._done

    def validate_first(self) -> int:
        """Return how many micro-batches after this attempt validate first."""
        return 0 if self._done is None else self._looks_after(self._done.told["verdicts"])

    def _looks_after(self, verdicts: Iterable[str]) -> int:
        return LOOKS_FIRST if any(map(self._is_odd, verdicts)) else max(0, self._looks - 1)

    def committed(self, batch_id: int, bus: Bus) -> None:
        """Report the result of a committed attempt, and maintain the states' table. To be called
        after EndTxn. A skipped micro-batch has no result."""
        done, self._done = self._done, None
        if done is None:
            return
        verdicts, dead = done.told["verdicts"], done.told["dead_letters"]
        self._looks = self._looks_after(verdicts)
        odd = {name: n for name, n in verdicts.items() if name != "appended" and name not in dead}
        if odd:
            dropped = {name: count for name, count in odd.items() if name not in OPTIONS}
            accepted = {name: count for name, count in odd.items() if name in OPTIONS}
            bus.emit(events.RecordsJudged(batch_id, dropped, accepted))
        try:
            self._generations.maintain()
        except UnavailableError as error:  # nothing is lost, and the next commit tries it again
            bus.emit(events.Warned(error.message))


def _is_whole(stage: object) -> TypeGuard[VerdictLookup]:
    """Return whether all records were validated before, and all are accepted."""
    return isinstance(stage, VerdictLookup) and not stage.files


def judged_anew(frame: DataFrame, planned: Plan, folder: Path) -> tuple[DataFrame, DataFrame, int]:
    """Validate the rows of a pipeline file's test, as if no producer were known.

    Returns the accepted rows, the accepted rows with the dead letters, and the number of dead
    letters. The producers' states are not kept.
    """
    if planned.dedup is None:
        return frame, frame, 0
    there = replace(planned, names=replace(planned.names, producers=str(folder)))
    opened = generations_of(there, planned.dedup).begun("")
    stage = _stage(frame, planned.dedup, opened, lambda job: job.collect(), 0)
    if not planned.dedup.policy.window:
        taken(frame, planned.dedup, stage).selectExpr("count(offset)").collect()
    count = sum(each.records for each in opened.dead())
    return taken(frame, planned.dedup, stage), refused(frame, planned.dedup, stage), count


def _judge(
    frame: DataFrame,
    dedup: StampRules,
    stage: VerdictSource,
    partitions: Collection[TopicPartition],
) -> None:
    if partitions:
        named = [f"(topic = '{tp.topic}' AND partition = {tp.partition})" for tp in partitions]
        rows = taken(frame.where(" OR ".join(named)), dedup, stage)
        rows.selectExpr("count(offset)").collect()


def _trusting(opened: StateAttempt) -> DedupStage | OptimisticPass:
    """Return a stage that accepts every row, and validates it while it passes or afterwards."""
    if isinstance(opened.stage, DedupStage):
        return replace(opened.stage, trusts=True)
    return opened.trusting()


def _stage(
    frame: DataFrame, dedup: StampRules, opened: StateAttempt, collect: Collect, tasks: int
) -> DedupStage | VerdictLookup:
    """Return the stage that returns the rows' codes.

    It validates rows as they pass. For producers with numbers spread over partitions, a job
    validates all rows first, and the stage looks up the results.
    """
    if not isinstance(opened.stage, ProducerScopeStage):
        return opened.stage
    collect(judging(frame, dedup, opened.stage, tasks))
    return opened.lookup()
