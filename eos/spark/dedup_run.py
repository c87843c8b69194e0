"""Dedup of a whole run: it begins each attempt with the right mode and producer states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eos.dedup.policy import OPTIONS
from eos.dedup.stamp_columns import StampRules
from eos.dedup.state_attempt import summary_of
from eos.dedup.validation_mode import ValidationMode, left_after, validation_mode
from eos.errors import PromiseBrokenError, UnavailableError, UsageError
from eos.faults import CrashPlan
from eos.folder import folder_of
from eos.ledger.record import Position
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.spark.dedup_attempt import DedupAttempt, validate, verdicts_of
from eos.spark.dedup_columns import accepted, accepted_and_dead

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pyspark.sql import DataFrame

    from eos.dedup.state_versions import StateVersions
    from eos.spark.dedup_attempt import Collect, Rows, Verdicts

# The key in dedup's part of a ledger record that has what `DedupRun.repeat` needs.
REPEAT = "repeat"


class DedupRun:
    """Dedup of one run. It begins the dedup of each attempt at a micro-batch, and decides whether
    the attempt validates records before or after it writes them."""

    def __init__(
        self, rules: StampRules, versions: StateVersions, crash: CrashPlan, parallelism: int
    ) -> None:
        self._rules = rules
        self._versions = versions
        self._crash = crash
        self._parallelism = parallelism
        self._micro_batches_left = 0  # so many micro-batches validate records before writing
        self._attempt: DedupAttempt | None = None  # the latest attempt of this micro-batch

    def require(self, position: Position) -> None:
        """Resume from the ledger's position.

        Raise if the producers' states of that position can't be read, or if they were computed with
        other rules."""
        self._versions.require(position.producers)
        self._micro_batches_left = position.validate_first

    def forget_attempts(self) -> None:
        """Forget the attempts so far: the next one begins as the first of a micro-batch."""
        self._attempt = None

    def begin(
        self, rows: Rows, position: Position, collect: Collect, *, in_one_task: bool
    ) -> DedupAttempt:
        """Begin an attempt at the current micro-batch. This may run a job that validates all rows.

        `rows` must return all rows of the micro-batch, since a missing row would look like a gap.
        """
        previous = self._attempt
        if previous is not None and not previous.is_validated:
            self._micro_batches_left = left_after(self._micro_batches_left, has_failed=True)
        mode = validation_mode(
            is_producer_scope=bool(self._rules.policy.window),
            is_retry=previous is not None,
            micro_batches_left=self._micro_batches_left,
            validates_first=self._rules.validates_first,
        )
        if previous is not None and previous.has_all_verdicts:
            rules, states = previous.rules, previous.states
            verdicts: Verdicts = states.lookup()
        else:
            accepts_gap = position.accepts_gap
            states = self._versions.begin(position.producers, accepts_gap=accepts_gap)
            # The stage's policy differs if an operator accepted gaps for this micro-batch. Then
            # records after a gap are written, and do not become dead letters.
            rules = replace(self._rules, policy=states.stage.policy)
            # With 0, one task validates all rows, without a shuffle.
            tasks = 0 if in_one_task else self._parallelism
            verdicts = verdicts_of(mode, rows, rules, states, collect, tasks)
        self._attempt = DedupAttempt(
            rules, states, verdicts, self._crash, self._parallelism, self._micro_batches_left
        )
        return self._attempt

    def repeat(self, rows: DataFrame, recorded: Mapping[str, Any]) -> DataFrame:
        """Return the rows that a committed attempt accepted, out of all rows of its range.

        `recorded` is dedup's part of the attempt's ledger record. Raise PromiseBrokenError if the
        states from before the attempt are gone, or if the verdicts differ from those recorded.
        """
        of = recorded[REPEAT]
        states = self._versions.begin(
            of["before"], accepts_gap=of.get("accepts_gap", False), now_ms=of["now_ms"]
        )
        rules = replace(self._rules, policy=states.stage.policy)
        mode, tasks = ValidationMode.VALIDATE_FIRST, self._parallelism
        verdicts = verdicts_of(mode, lambda: rows, rules, states, lambda job: job.collect(), tasks)
        if not rules.policy.window:
            validate(rows, rules, verdicts)
        found = summary_of(states.reports(), states.stage.policy.dead)
        for name in ("verdicts", "dead_letters"):
            if found[name] != recorded[name]:
                raise PromiseBrokenError(
                    "dedup_repeat_differs",
                    f"dedup's {name} differ from those of the committed attempt: {found[name]} "
                    f"instead of {recorded[name]}",
                    hint="were settings of `dedup` changed, or did compaction remove source "
                    "records? Restore the settings, then start again",
                )
        return accepted(rows, rules, verdicts)

    def committed(self, batch_id: int, bus: Bus) -> None:
        """Report dedup's result for a committed micro-batch, and clean up the states' table.

        Call this after EndTxn. It does nothing for a micro-batch that was skipped."""
        attempt, self._attempt = self._attempt, None
        if attempt is None or attempt.version is None:
            return
        self._micro_batches_left = attempt.validate_first
        summary = attempt.version.summary
        verdicts, dead = summary["verdicts"], summary["dead_letters"]
        notable = {
            name: n for name, n in verdicts.items() if name != "appended" and name not in dead
        }
        if notable:
            dropped = {name: count for name, count in notable.items() if name not in OPTIONS}
            unusual = {name: count for name, count in notable.items() if name in OPTIONS}
            bus.emit(events.RecordsDeduplicated(batch_id, dropped, unusual))
        try:
            self._versions.maintain()
        except UnavailableError as error:  # nothing is lost, and the next commit tries it again
            bus.emit(events.Warned(error.message))


def repeated(dedup: DedupRun | None, rows: DataFrame, recorded: Mapping[str, Any]) -> DataFrame:
    """Return the rows that dedup accepted in a committed attempt: all, if it had no dedup.

    `recorded` is dedup's part of the attempt's ledger record.
    """
    if REPEAT not in recorded:
        return rows
    if dedup is None:
        raise PromiseBrokenError(
            "dedup_removed",
            "the attempt ran with `dedup`, which the pipeline file no longer has: restore it until "
            "the tables have the attempt's rows",
            hint="restore `dedup` until the tables have the attempt's rows",
        )
    return dedup.repeat(rows, recorded)


def dedup_of(planned: Plan, crash: CrashPlan) -> DedupRun | None:
    """Return the dedup of a run, or None if the pipeline declares none."""
    if planned.dedup is None:
        return None
    versions = state_versions(planned, planned.dedup)
    return DedupRun(planned.dedup, versions, crash, planned.parallelism)


def state_versions(planned: Plan, rules: StampRules) -> StateVersions:
    """Return the store of the producers' states, by version.

    Raise UsageError if the profile's state root is neither a local or mounted folder nor a bucket
    of S3."""
    names = planned.names
    folder = folder_of(names.producers, planned.spark_conf) if names.producers else None
    if folder is None:
        raise UsageError(
            "dedup_state_remote",
            f"{names.pipeline}: `dedup` needs a state root that is a folder of a local or mounted "
            f"disk, or a bucket of S3, but `state.root` is {names.state_root}",
            hint="set `state.root` to a folder that is shared with the executors, or to `s3a://`: "
            "docs/state-roots.md lists what each kind of root supports",
        )
    # Imported late: it takes a tenth of a second, and a run without dedup does not need it.
    from eos.dedup.state_table import ProducersTable
    from eos.dedup.state_versions import StateVersions

    table = ProducersTable(folder, names.pipeline)
    topics = planned.source_topics
    topic = topics[0] if len(topics) == 1 else ""
    return StateVersions(names.pipeline, table, rules.policy, rules.reading, topic)


def deduplicate_test(
    frame: DataFrame, planned: Plan, folder: Path
) -> tuple[DataFrame, DataFrame, int]:
    """Deduplicate the input rows of a test in a pipeline file, as if no producer were known.

    Return the accepted rows, the accepted rows with the dead letters, and the number of dead
    letters. The producers' states are not kept.
    """
    rules = planned.dedup
    if rules is None:
        return frame, frame, 0
    isolated = replace(planned, names=replace(planned.names, producers=str(folder)))
    states = state_versions(isolated, rules).begin("")
    mode = ValidationMode.VALIDATE_FIRST
    verdicts = verdicts_of(mode, lambda: frame, rules, states, lambda job: job.collect(), 0)
    if not rules.policy.window:
        validate(frame, rules, verdicts)
    count = sum(each.records for each in states.dead())
    return (
        accepted(frame, rules, verdicts),
        accepted_and_dead(frame, rules, verdicts),
        count,
    )
