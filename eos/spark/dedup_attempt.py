"""Dedup beside a run: an attempt's rows, and producers' states behind it."""

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
from eos.dedup.record_position import OFFSETS_MAX, PARTITIONS_MAX
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
    """None: the pipeline declares no dedup."""
    if planned.dedup is None:
        return None
    generations = generations_of(planned, planned.dedup)
    return DedupAttempts(planned.dedup, generations, crash, planned.parallelism)


def generations_of(planned: Plan, dedup: StampRules) -> StateVersions:
    names = planned.names
    if not names.producers:
        raise UsageError(
            f"{names.pipeline}: `dedup` needs a state root that is a folder of this machine, and "
            f"checkpoints go to {names.checkpoints}",
            hint="its states are committed by a library that has no way yet to refuse a second "
            "writer in an object store; name a folder as `state.root`, shared with the executors",
        )
    # Late: a tenth of a second that a run without dedup does not need.
    from eos.dedup.state_table import ProducersTable
    from eos.dedup.state_versions import StateVersions

    table = ProducersTable(Path(names.producers), names.pipeline)
    topics = planned.source_topics
    topic = topics[0] if len(topics) == 1 else ""
    return StateVersions(names.pipeline, table, dedup.policy, dedup.reading, topic)


class DedupAttempts:
    """Beside one run: one attempt after the other."""

    def __init__(
        self, dedup: StampRules, generations: StateVersions, crash: CrashPlan, parallelism: int
    ) -> None:
        self._dedup = dedup
        self._generations = generations
        self._crash = crash
        self._parallelism = parallelism
        self._asked = dedup  # and as the attempt that was begun last asks
        self._stage: DedupStage | VerdictLookup | OptimisticPass
        self._opened: StateAttempt | None = None  # by the attempt that was executed last
        self._done: VersionRecord | None = None
        # Of spread producers, judged behind what an attempt wrote, which is done again for it:
        self._found: StateAttempt | None = None
        self._is_again = False  # this micro-batch was begun before
        self._is_unjudged = False  # what the attempt works on: some of it may have to go
        self._looks = 0  # in as many micro-batches rows wait for their verdicts

    def require(self, position: Position) -> None:
        """Resume from the ledger's position. Raises if the states that go with it can't be had."""
        self._generations.require(position.producers)
        self._looks = position.validate_first

    def next_micro_batch(self) -> None:
        """Nothing holds of what was found out about the one before."""
        self._found, self._is_again = None, False

    def begin(
        self, frame: DataFrame, position: Position, collect: Collect, *, in_one_task: bool
    ) -> None:
        """An attempt at these rows. Each one that is left out before would be a gap."""
        self._done = None
        found, self._found = self._found, None
        accepts_gap = position.accepts_gap
        opened = found or self._generations.begun(position.producers, accepts_gap=accepts_gap)
        self._opened = opened
        # What a person lets pass this once is no dead letter.
        self._asked = replace(self._dedup, policy=opened.stage.policy)
        # 0: one judges them all, without a shuffle.
        tasks = 0 if in_one_task else self._parallelism
        if self._is_again and self._is_unjudged:  # that attempt failed
            self._looks = LOOKS_FIRST
        # One task with few rows gains nothing by not waiting, where it judges by itself.
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
        """Those that stay."""
        if _is_whole(self._stage):
            return counted(frame, self._asked)
        return taken(frame, self._asked, self._stage)

    def in_one_pass(self, plan: Plan, frame: DataFrame) -> FusedDedup | None:
        """The same with encoding behind it. None: there is no such short way."""
        if _is_whole(self._stage):
            return None  # no row has to be told
        return in_one_pass(plan, self._asked, self._stage, frame)

    def judge_all(
        self, job: DataFrame, frame: DataFrame, ranges: Ranges, floors: Ends
    ) -> Sequence[RejectedRecords]:
        """Looks at what the job did not: Spark leaves out what it sees that nothing comes of, such
        as the rows before a filter that none passes. What they are must be known all the same.
        Returns what goes to the dead letters."""
        _require_places(ranges.ends)
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
        """Of the attempt: each record that was read has a verdict."""
        return sum(self._begun().counts().values())

    def _judge_missing(
        self,
        frame: DataFrame,
        opened: StateAttempt,
        stage: DedupStage,
        read: Iterable[TopicPartition],
    ) -> None:
        """Of which no task has reported. A step that does not read its rows to the end has them
        judged by nobody: those that passed may be gone by now."""
        missing = opened.missing(read)
        _judge(frame, self._asked, stage, missing)
        found = sorted(set(missing) - set(opened.missing(missing)))
        if found and stage.trusts:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in found)
            raise DedupRetryError(
                f"records of {names} were not validated when the rest was written, because "
                f"{_PRUNED}. {_RETRY}"
            )

    def _judge_behind(
        self,
        frame: DataFrame,
        opened: StateAttempt,
        stage: OptimisticPass,
        read: Iterable[TopicPartition],
    ) -> None:
        """All rows are written, and judged by who wrote them."""
        _judge(frame, self._asked, stage, set(read) - stage.left().counts.keys())
        passed, found = stage.left().counts, opened.lookup()
        if passed != found.counts:
            raise DedupRetryError(
                f"{sum(found.counts.values()):,} of {sum(passed.values()):,} records were "
                f"validated when all was written, because {_PRUNED}. {_RETRY}"
            )
        stage.clear()

    def _require_even(self, opened: StateAttempt) -> None:
        """Raise DedupRetryError if dedup leaves out a row that was written. The retry reuses the
        verdicts that are known by now."""
        odd = {name: count for name, count in opened.counts().items() if self._is_odd(name)}
        if odd:
            # Where a task judges by itself, it does so again: only what is odd was noted.
            self._found = opened if isinstance(self._stage, OptimisticPass) else None
            counts = ", ".join(f"{count:,} {name}" for name, count in sorted(odd.items()))
            raise DedupRetryError(
                f"dedup found {counts} records among those just written. {_RETRY}; the next "
                f"{LOOKS_FIRST} micro-batches validate first, too"
            )

    @property
    def judges(self) -> int:
        """How many tasks should judge behind what they have written."""
        if self._is_unjudged and isinstance(self._stage, OptimisticPass):
            return min(self._parallelism, SHARDS)
        return 0

    def behind(self, tasks: int) -> Callable[[int], None]:
        """What is left to do for tasks that have written: the first so many of them judge."""
        stage, passing = self._begun().stage, self._stage
        if not self._is_unjudged or not isinstance(passing, OptimisticPass):
            return nothing
        assert isinstance(stage, ProducerScopeStage), "no other stage leaves stamps"
        return DeferredCheck(stage, passing, tasks)

    def doubted(self, error: EosError) -> EosError:
        """As the end of an attempt, if it was of rows that were not all judged: what was refused,
        or broke a step, may be a row that no step should have seen, and what is missing to who
        judged, a file that its machine did not see yet. Who looks first will tell."""
        if self._is_unjudged and isinstance(error, RecordRefusedError | TransformError):
            return AttemptFailedError(error.message, hint=error.hint)
        return error

    def _is_odd(self, verdict: str) -> bool:
        """It is not as if no record had been judged."""
        code = NAMES.index(verdict)
        return code in left_out(self._asked) or (code > 0 and bool(self._asked.verdict))

    def refused(self, frame: DataFrame) -> DataFrame:
        """The attempt's rows once more, with those that go to the dead letters."""
        return refused(frame, self._asked, self._stage)

    def _begun(self) -> StateAttempt:
        assert self._opened is not None, "begun() comes first"
        return self._opened

    def producers(self) -> VersionRecord:
        """Behind the job: the generation for the ledger's record."""
        self._done = self._begun().commit(self._crash.reached)
        return self._done

    def validate_first(self) -> int:
        """Return how many micro-batches after this attempt validate first."""
        return 0 if self._done is None else self._looks_after(self._done.told["verdicts"])

    def _looks_after(self, verdicts: Iterable[str]) -> int:
        return LOOKS_FIRST if any(map(self._is_odd, verdicts)) else max(0, self._looks - 1)

    def committed(self, batch_id: int, bus: Bus) -> None:
        """After EndTxn. A micro-batch that was skipped has nothing to tell."""
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
        except UnavailableError as error:  # nothing is lost by it, and it is tried again
            bus.emit(events.Warned(error.message))


def _require_places(ends: Ends) -> None:
    """One number has both on the way to Python (`dedup/record_position.py`): others would be
    mistaken for
    records that were there."""
    for tp, end in ends.items():
        if tp.partition >= PARTITIONS_MAX or end > OFFSETS_MAX:
            raise UsageError(
                f"{tp.topic}-{tp.partition} ends at offset {end}: `dedup` knows partitions below "
                f"{PARTITIONS_MAX:,} and offsets up to {OFFSETS_MAX:,}",
                hint="leave `dedup` out for this topic",
            )


def _is_whole(stage: object) -> TypeGuard[VerdictLookup]:
    """All records were judged before, and none is left out."""
    return isinstance(stage, VerdictLookup) and not stage.files


def judged_anew(frame: DataFrame, planned: Plan, folder: Path) -> tuple[DataFrame, DataFrame, int]:
    """For a test of a pipeline file: as if no producer were known. Its states go nowhere. The rows
    that stay, those with dead letters among them, and how many of these there are."""
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
    """What says of each row that it stays, and has it judged beside that, or behind it."""
    if isinstance(opened.stage, DedupStage):
        return replace(opened.stage, trusts=True)
    return opened.trusting()


def _stage(
    frame: DataFrame, dedup: StampRules, opened: StateAttempt, collect: Collect, tasks: int
) -> DedupStage | VerdictLookup:
    """What tells the rows' codes: it judges them as they pass, or they were judged before."""
    if not isinstance(opened.stage, ProducerScopeStage):
        return opened.stage
    collect(judging(frame, dedup, opened.stage, tasks))
    return opened.lookup()
