"""The report of `eos recover` without an option.

It compares the offsets of ledger, group, checkpoint and source, and predicts the next run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eos.checkpoint.offset_log import CheckpointState
from eos.errors import EosError, PromiseBrokenError
from eos.inspect.next_start import Prediction, predict, settled
from eos.inspect.snapshot import Snapshot, bounds, short_deadline, take_snapshot
from eos.inspect.startup_stops import StartupStop, startup_stops
from eos.kafka.api import TopicPartition
from eos.kafka.client import KafkaClient
from eos.ledger.record import Ends, LedgerRecord
from eos.plan.plan import Plan
from eos.startup.checkpoint_dir import is_at_rest
from eos.startup.liveness import Liveness, liveness_of

# Ledger records to read, to propose one for `--rewind-to`. The text output lists the newest.
HISTORY_MAX = 200
_RESET = (
    "because an operator, another deployment, or a transaction with a part of a micro-batch "
    "(--until, max_bytes) wrote the ledger's last record"
)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """Offsets of one source partition in ledger, group, checkpoint and log; None: it has none.

    `committed` and `planned` are the ends of the checkpoint's last committed micro-batch, and of
    one that was planned after it. `earliest` and `latest` are those of the log.
    """

    partition: TopicPartition
    ledger: int | None
    group: int | None
    committed: int | None
    planned: int | None
    earliest: int | None
    latest: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that `eos recover` shows of a pipeline.

    `is_moving` is true if a running pipeline committed during each try to compare, so nothing could
    be compared. `runs_as` is the process id of a running pipeline, if it is known.
    """

    planned: Plan
    last: LedgerRecord | None
    history: Sequence[LedgerRecord]
    topic_ids: Mapping[str, tuple[str | None, str | None]]  # topic id in the ledger, and now
    checkpoint: CheckpointState | None
    is_readable: bool  # whether the checkpoint can be read without Spark
    is_group_hidden: bool
    rows: Sequence[PartitionRow]
    agrees: Sequence[str]
    warnings: Sequence[str]
    stops: Sequence[StartupStop]
    next: str
    runs: Liveness = Liveness.NO
    runs_as: int | None = None
    is_moving: bool = False


def explain(planned: Plan, client: KafkaClient) -> Explanation:
    """Return what `eos recover` shows. This changes nothing; the pipeline may run meanwhile."""
    take = partial(take_snapshot, planned, client, skips_foreign=True)
    found, is_settled = settled(take, _explain_once)
    if is_settled:
        return found
    unknown = "unknown: the running pipeline committed during each look"
    return replace(found, stops=(), warnings=(), agrees=(), next=unknown, is_moving=True)


def _explain_once(view: Snapshot) -> Explanation:
    found = predict(view)
    history = view.ledger.history(HISTORY_MAX, short_deadline()) if view.has_ledger else []
    checkpoint = _checkpoint(view)
    committed, planned = _ends(checkpoint)
    known = view.position.ends
    every = known.keys() | (found.here or frozenset()) | committed.keys() | planned.keys()
    ids, existing = _topics(view, every)
    limits = bounds(view.source, existing)
    group = None if found.is_group_hidden else view.group(every)
    runs, process = liveness_of(view.planned, view.last)
    rows = [
        PartitionRow(
            tp,
            known.get(tp),
            (group or {}).get(tp),
            committed.get(tp),
            planned.get(tp),
            limits.earliest.get(tp),
            limits.latest.get(tp),
        )
        for tp in sorted(every)
    ]
    return Explanation(
        planned=view.planned,
        last=view.last,
        history=history,
        topic_ids=ids,
        checkpoint=checkpoint,
        is_readable=view.files is not None,
        is_group_hidden=group is None,
        rows=rows,
        agrees=_agrees(found, group),
        warnings=[*found.warnings, *_foreign_warnings(view)],
        stops=startup_stops(found.errors, history, limits),
        next=_next(found),
        runs=runs,
        runs_as=process,
    )


def _foreign_warnings(view: Snapshot) -> list[str]:
    """Return a warning for each other producer's ledger record before the pipeline's last record.

    A startup ignores such records; other readers of the ledger stop at them.
    """
    last = -1 if view.last is None else view.last.offset
    return [
        f"{each.error.message}; `eos status`, `eos audit` and `eos verify` stop there until "
        "--skip-foreign"
        for offset, each in sorted(view.ledger.foreign.items())
        if offset < last
    ]


def _checkpoint(view: Snapshot) -> CheckpointState | None:
    newest = view.newest()
    if newest is None:
        return None
    try:
        return newest.state()
    except PromiseBrokenError:  # `predict` reports this error
        return CheckpointState(newest.location, "", newest.planned(), newest.committed(), {})


def _ends(checkpoint: CheckpointState | None) -> tuple[Ends, Ends]:
    """Return the end offsets of the checkpoint's last committed micro-batch, and those of a
    micro-batch planned after it. Either is empty if there is none."""
    if checkpoint is None:
        return {}, {}
    is_open = checkpoint.planned != checkpoint.committed
    committed = checkpoint.ends_of(checkpoint.committed)
    return committed, checkpoint.ends_of(checkpoint.planned) if is_open else {}


def _topics(
    view: Snapshot, every: set[TopicPartition]
) -> tuple[Mapping[str, tuple[str | None, str | None]], list[TopicPartition]]:
    """Return each topic's id in the ledger and its current one, and the existing partitions."""
    known = view.position.topic_ids
    names = sorted({tp.topic for tp in every} | known.keys())
    now = view.source.client.topics(names, short_deadline()) if names else {}
    ids = {
        name: (known.get(name), now[name].topic_id if now[name].error == 0 else None)
        for name in names
    }
    existing = [tp for tp in every if ids[tp.topic][1] and tp.partition < now[tp.topic].partitions]
    return ids, existing


def _agrees(found: Prediction, group: Ends | None) -> list[str]:
    view, cases = found.view, {error.code for error in found.errors}
    if view.last is None:
        return []
    count = len(view.position.topic_ids)
    topics = "the source topic has the id" if count == 1 else f"{count} source topics have the ids"
    facts = [
        (
            not cases & {"gone", "recreated"},
            f"{topics} that the ledger has",
        ),
        (
            not cases & {"gone", "recreated", "truncated", "source_lost"},
            "the source has the records that are read next",
        ),
        (
            group is not None
            and all(group.get(tp) == end for tp, end in view.position.ends.items()),
            "the group's offsets are the ledger's ends",
        ),
    ]
    return [text for is_true, text in facts if is_true]


def _next(found: Prediction) -> str:
    if found.errors:
        first: EosError = found.errors[0]
        case = first.code
        return f"stops with exit code {first.recovery.value}: {case}"
    if not _uses_known_folder(found):
        return _next_in_remote_store(found)
    if found.view.last is None:
        return f"begins at `start:`, with checkpoint {found.chosen}"
    up, decision = found.upcoming, found.decision
    if up is None or decision is None:
        reason = (
            _RESET
            if found.position and found.position.is_reset
            else "because there is none"
            if found.view.newest() is None
            else "because the existing one is older than the ledger"
        )
        return f"resumes at the ledger's ends, with the fresh checkpoint {found.chosen}, {reason}"
    action = f"{'runs' if up.is_planned else 'plans'} micro-batch {up.step.batch_id}"
    is_further = decision.starts != up.step.starts
    if decision.is_done and (up.is_planned or is_further):
        action = f"skips micro-batch {up.step.batch_id}, which is committed"
    elif is_further:
        action += ", from the ledger's ends on: a part of it is committed"
    return f"resumes with checkpoint {found.chosen}: {action}"


def _uses_known_folder(found: Prediction) -> bool:
    """Return whether the next run uses the predicted checkpoint folder, and not one that is named
    after its fence or a copy."""
    files, last = found.view.files, found.view.last
    if files is None or files.is_local or found.upcoming is None:
        return files is not None and files.is_local
    return is_at_rest(found.view.planned, last)


def _next_in_remote_store(found: Prediction) -> str:
    """Return the next run's action in a remote store, where it may use a folder of its own.

    If only a running Spark can read the store, the folder is taken from the ledger.
    """
    planned, last, files = found.view.planned, found.view.last, found.view.files
    root = planned.names.checkpoints
    if last is None:
        return f"begins at `start:`, with a fresh checkpoint in {root}"
    label = found.chosen if found.upcoming else ""
    if files is None and last.position.checkpoint:
        label = f"{root}/{last.position.checkpoint}"
    reason = "because an earlier instance may still write to the previous one"
    if found.position and found.position.is_reset:
        reason = _RESET
    elif is_at_rest(planned, last):
        if label:
            return f"resumes with checkpoint {label}, which only a running Spark can read"
        reason = "because the previous one is gone, or older than the ledger"
    elif last.position.keeps_state and label:
        return f"resumes with a copy of checkpoint {label}, {reason}"
    return f"resumes at the ledger's ends, with a fresh checkpoint in {root}, {reason}"
