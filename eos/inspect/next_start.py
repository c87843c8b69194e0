"""What would the next run of a pipeline do at its startup, and which problems would stop it?

The prediction calls the startup's own checks, and changes nothing. A startup stops at its first
problem. The prediction leaves out the topic or partition with that problem and continues, so that
it reports all problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from eos.checkpoint.files import LocalFiles
from eos.checkpoint.offset_log import Checkpoint
from eos.delta import table_check
from eos.delta.log import DeltaLog
from eos.errors import EosError, Recovery, UnavailableError
from eos.inspect.cluster_view import is_hidden
from eos.inspect.snapshot import Snapshot, short_deadline
from eos.kafka.api import TopicPartition
from eos.ledger import ranges
from eos.ledger.ranges import Decision, PlannedBatch
from eos.ledger.record import Position
from eos.location import local_path
from eos.observe import events
from eos.plan.delta_sink import Table, app_of
from eos.startup.checkpoint_age import Upcoming, require_level, upcoming
from eos.startup.checkpoint_dir import choose_checkpoint
from eos.startup.deployment import require_name
from eos.startup.namesakes import require_own_names
from eos.startup.ownership import require_free
from eos.startup.resume_position import (
    inherited,
    require_new_whole,
    require_targets,
    resume_position,
    starting_offsets,
)
from eos.startup.source_state import require_other_cluster
from eos.startup.stateful_pipeline import require_state

if TYPE_CHECKING:
    from eos.dedup.stamp_columns import StampRules

_BRIEF_MS = 1_000
_LOOKS_MAX = 3
# Errors from the comparison of the ledger with values that a running pipeline changes.
_MOVING = frozenset(
    (
        *("group_ahead", "hole", "beyond", "unknown", "inside_state", "batch_out_of_order"),
        *("checkpoint_behind", "ledger_empty", "truncated", "producers_lost", "state_lost"),
        *("table_behind", "table_ahead", "table_history", "table_replaced", "table_fenced"),
    )
)
FOUND_MAX = 20  # problems of one kind to report; the first few show the cause

_T = TypeVar("_T")


@dataclass(slots=True)
class Prediction:
    """What the next startup is predicted to find.

    `errors` has the problems that would stop the startup, in the order of its checks. The other
    fields are filled as far as these problems allow.
    """

    view: Snapshot
    errors: list[EosError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    is_group_hidden: bool = False
    position: Position | None = None
    here: frozenset[TopicPartition] | None = None  # the source's partitions
    chosen: str | None = None  # the checkpoint folder
    upcoming: Upcoming | None = None  # next micro-batch; None: a fresh checkpoint
    decision: Decision | None = None

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.Warned):
            self.warnings.append(event.message)

    def attempt(self, check: Callable[..., _T], *arguments: Any) -> _T | None:
        """Call `check` and return its result.

        If it raises an error that would stop a startup, add the error to `errors` and return None.
        Other errors, such as an unreachable broker, may be gone in the next run, so they are
        raised.
        """
        try:
            return check(*arguments)
        except EosError as error:
            if error.recovery not in {Recovery.STOP, Recovery.USAGE}:
                raise
            if error.message not in [known.message for known in self.errors]:
                self.errors.append(error)
            return None


def settled(take: Callable[[], Snapshot], look: Callable[[Snapshot], _T]) -> tuple[_T, bool]:
    """Return what `look` finds in a snapshot, and whether the ledger had no newer record after it.

    A running pipeline may commit between the read of the ledger and that of the group's offsets,
    the checkpoint or a table. They then seem to be ahead of the ledger, so look again, a few times.
    """
    view = take()
    for _ in range(_LOOKS_MAX):
        found = look(view)
        before, view = view, take()
        if _last_offset(before) == _last_offset(view):
            return found, True
    return found, False


def _last_offset(view: Snapshot) -> int:
    return -1 if view.last is None else view.last.offset


def predict_settled(take: Callable[[], Snapshot]) -> Prediction:
    """Predict the next startup of a pipeline that may be running.

    If it commits during each look, the errors that may come from that are left out.
    """
    found, is_settled = settled(take, predict)
    if not is_settled:
        found.errors = [each for each in found.errors if each.code not in _MOVING]
        found.warnings.append(
            "the running pipeline committed during each look, so its group offsets, checkpoint and "
            "tables were not compared with the ledger"
        )
    return found


def predict(view: Snapshot) -> Prediction:
    """Predict the next startup, with its checks in the same order as `run.pipeline`.

    Nothing is created, fenced or written.
    """
    planned, client, source = view.planned, view.client, view.source
    files, last = view.files, view.last
    found = Prediction(view)
    found.attempt(require_other_cluster, planned, client, short_deadline())
    undeclared = [name for name in planned.sink_topics if name not in planned.created_topics]
    found.attempt(require_targets, client, undeclared, short_deadline())
    if view.has_ledger:
        found.attempt(view.ledger.require_kept, short_deadline())
    found.errors += [each.error for each in view.foreign[:1]]
    if view.foreign and last is None:
        return found  # no ledger record of the pipeline, so there is nothing to compare
    found.attempt(require_name, planned)
    found.attempt(
        lambda: require_own_names(planned, client, last, short_deadline(), is_forced=False)
    )
    found.attempt(lambda: require_free(planned, view.last, is_forced=False))
    found.position = _position(found)
    position = found.position or Position({}, {})
    # Only Spark can find out whether the transforms keep state now. Assume that they still do if
    # they did in the last run, which the ledger records.
    before = replace(planned, is_stateful=position.keeps_state)
    if files is not None:
        found.chosen = found.attempt(
            lambda: choose_checkpoint(before, files, position, last, bus=found)
        )
    if files is not None and found.chosen is not None:
        found.attempt(
            lambda: require_state(before, files, str(found.chosen), position, accepts_loss=False)
        )
    if planned.dedup is not None:
        found.attempt(_require_producers, found, planned.dedup, position)
    starts = found.attempt(starting_offsets, planned, source.client, position, short_deadline())
    found.here = None if starts is None else frozenset(starts)
    found.attempt(_require_new_whole, found)
    used = view.with_plan(found.chosen)
    if used is not None:
        found.upcoming = found.attempt(upcoming, used)
        if found.upcoming is not None and not position.is_reset:
            found.attempt(require_level, before, used, position)
    for table in planned.tables:
        found.attempt(_require_table, view, table)
    _decide(found, position)
    return found


def _position(found: Prediction) -> Position | None:
    """Return the position that the next run resumes from.

    A topic or partition that would stop the startup is left out, and its error is added to
    `found.errors`.
    """
    view, last = found.view, found.view.last
    planned, source = view.planned, view.source
    if last is None:
        return found.attempt(resume_position, planned, source, None, found, short_deadline())
    for _ in range(FOUND_MAX):
        try:
            position = found.attempt(
                resume_position, planned, source, last, found, short_deadline()
            )
        except UnavailableError as error:
            if not is_hidden(error):
                raise
            found.is_group_hidden = True  # by an open transaction, which a startup's fence ends
            break
        if position is not None:
            return position
        left = _drop_topic(last.position, found.errors[-1])
        if found.errors[-1].code == "gone":
            left = _drop_missing_topics(found, left)
        if left == last.position:
            break
        last = replace(last, position=left)
    return inherited(planned, last)


def _require_new_whole(found: Prediction) -> None:
    view, chosen = found.view, found.chosen
    if view.files is None or chosen is None:
        return
    checkpoint = Checkpoint(view.files, chosen, is_opaque=view.planned.is_dataframe)
    asked = view.planned, view.source, view.position, checkpoint
    require_new_whole(*asked, short_deadline(), view.last)


def _drop_missing_topics(found: Prediction, position: Position) -> Position:
    """Return the position without topics that don't exist, and add an error for each of them.

    The check of the first missing topic has waited long for topics to appear, so wait only briefly.
    """
    view = found.view
    brief = replace(view.source, timeout_ms=_BRIEF_MS)
    now = (
        view.source.client.topics(position.topic_ids, short_deadline())
        if position.topic_ids
        else {}
    )
    for name in sorted(name for name, info in now.items() if info.error)[:FOUND_MAX]:
        if found.attempt(brief.topic_ids, [name]) is None:
            position = _drop_topic(position, found.errors[-1])
    return position


def _drop_topic(position: Position, error: EosError) -> Position:
    """Return the position without the topic that the error names, or without only the partition if
    the error names one."""
    topic, partition = error.fields.get("topic"), error.fields.get("partition")
    ends = {
        tp: end
        for tp, end in position.ends.items()
        if tp.topic != topic or partition not in (None, tp.partition)
    }
    ids = dict(position.topic_ids)
    if partition is None and topic is not None:
        ids.pop(topic, None)
    return replace(position, ends=ends, topic_ids=ids)


def _require_producers(found: Prediction, rules: StampRules, position: Position) -> None:
    """Raise the error that would stop the next startup because of dedup's states of producers.

    If the state root's files are not compared, only the settings are."""
    from eos.spark.dedup_run import state_versions

    versions = state_versions(found.view.planned, rules)
    versions.require_rules(position.producers)
    if found.view.files is None:
        return
    try:
        versions.require(position.producers)
    except UnavailableError as error:
        found.warnings.append(error.message)


def _require_table(view: Snapshot, table: Table) -> None:
    """Raise the error that would stop the next startup, as far as the table's log shows it.

    Only tables on this machine are checked. A startup also compares the table's id and columns,
    which needs Spark.
    """
    known = view.position.tables.get(table.name)
    if known is None or not view.has_ledger or local_path(table.path) is None:
        return
    app = app_of(view.planned.names, view.ledger_id, table.name)
    log = DeltaLog(LocalFiles(), table.path, app)
    now = log.newest()
    if now is None:
        raise table_check.replaced(view.name, table, known, None)
    table_check.require_complete(view.name, table, log, known, now)


def _decide(found: Prediction, position: Position) -> None:
    """Predict what the next run does with its first micro-batch, and store that in `found`.

    The ledger may show that the micro-batch is committed already, or that it must run. If Spark's
    checkpoint contradicts `position`, the position to resume from, the error of each affected
    partition is added to `found.errors`.
    """
    view, up = found.view, found.upcoming
    if up is None or found.here is None:
        return
    # Leave out the partitions whose problem was reported already. Otherwise they would be reported
    # again, as unknown to the ledger.
    left_out = view.position.ends.keys() - position.ends.keys()
    step = _restrict(up.step, found.here - left_out)
    if not up.is_planned:
        known = position.ends.keys() & found.here
        # Spark would plan a new micro-batch up to these ends, or less with `max_records`.
        step = replace(step, ends=view.stable_ends(step.starts.keys() | known))
    for _ in range(FOUND_MAX):
        found.decision = found.attempt(_decide_batch, view, position, step)
        fields = {} if found.decision else found.errors[-1].fields
        if "partition" not in fields:
            break
        stopped = TopicPartition(fields["topic"], fields["partition"])
        step = _restrict(step, frozenset(step.ends) - {stopped})


def _decide_batch(view: Snapshot, position: Position, step: PlannedBatch) -> Decision:
    unknown = ranges.unknown(position, step)
    earliest = view.source.earliest(unknown) if unknown else {}
    return ranges.decide(view.name, position, step, earliest)


def _restrict(step: PlannedBatch, to: frozenset[TopicPartition]) -> PlannedBatch:
    starts = {tp: start for tp, start in step.starts.items() if tp in to}
    ends = {tp: end for tp, end in step.ends.items() if tp in to}
    return replace(step, starts=starts, ends=ends)
