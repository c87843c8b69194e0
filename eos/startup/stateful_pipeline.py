"""What differs for a pipeline that keeps state between its micro-batches?

A stateless pipeline runs its steps inside `foreachBatch`, on rows that still have their offsets. A
stateful pipeline runs them before `foreachBatch`, in Spark's plan of the stream, because Spark
keeps the state. Each time that micro-batch N is evaluated, Spark reads version N of the state and
writes version N+1. The consequences:

- A retried micro-batch is evaluated again from version N. Spark does the same when it repeats one
  after a crash.
- A micro-batch that is already committed is evaluated again without output, because the next one
  needs version N+1 (`advance`). This happens after a crash between EndTxn and Spark's commit log.
- Rows below an offset can't be dropped, so a micro-batch is run whole or not at all.
- If a checkpoint is lost, the state is lost with it. The ledger has the offsets to resume from, but
  not the state. The startup stops unless an operator accepts the loss.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eos.checkpoint.files import Files
from eos.checkpoint.offset_log import Checkpoint
from eos.errors import PromiseBrokenError, TransformError
from eos.ledger.record import Position
from eos.location import local_path
from eos.object_store import is_in_bucket
from eos.observe import events
from eos.observe.bus import Bus
from eos.plan.plan import Plan
from eos.spark.failure import Failure
from eos.transform.plan_check import PlanState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's error conditions for a checkpoint whose state was written by another plan.
_CHANGED = (
    "STATE_STORE_KEY_SCHEMA",
    "STATE_STORE_VALUE_SCHEMA",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH",
)
_GONE = ("CANNOT_LOAD_STATE_STORE",)
_RESTARTS = (
    "the run uses a fresh checkpoint at the ledger's ends, every total restarts from zero, and "
    "the ledger records that decision"
)
_IN_USE = "CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR"  # an earlier task still holds it


def with_state(plan: Plan, state: PlanState, bus: Bus) -> Plan:
    """Return the plan, marked as stateful if its transforms keep state. Raise TransformError if a
    setting does not work with stateful transforms."""
    require_allowed(plan, state)
    if not state.operators or plan.is_dataframe:
        return plan
    if not state.is_bounded:
        bus.emit(
            events.Warned(
                f"the transforms keep state ({state}) without a watermark: the state grows with "
                "every new key; withWatermark() lets Spark drop expired state"
            )
        )
    return replace(plan, is_stateful=True, decode=replace(plan.decode, is_strict=True))


def require_allowed(plan: Plan, state: PlanState) -> None:
    """Raise TransformError if a setting of the plan does not work with transforms that keep state,
    or if it needs such transforms and there are none."""
    if plan.is_dataframe:
        reason = "only the checkpoint knows the offsets of the job's DataFrame"
        _require_root(plan.names.checkpoints, reason, copied_in_s3=False)
        return
    if not state.operators:
        if plan.output_mode != "append":
            raise TransformError(
                "output_mode_without_state",
                f"`output_mode: {plan.output_mode}` is for pipelines that keep state, but these "
                "transforms keep none",
                hint="remove `output_mode`",
            )
        return
    answers = {each.on_error for each in plan.decode.causes} - {"fail"}
    if answers:
        on_error = min(answers)
        raise TransformError(
            "on_error_with_state",
            f"the pipeline sets `on_error: {on_error}`, but the transforms keep state "
            f"({state}): rejected records could not be counted before the commit",
            hint="set `on_error: fail`, or reject such records in a pipeline without state before "
            "this one",
        )
    if plan.dedup is not None:
        raise TransformError(
            "dedup_with_state",
            f"the pipeline sets `dedup`, but the transforms keep state ({state}): Spark evaluates "
            "them before dedup can validate the micro-batch",
            hint="drop the duplicates in a pipeline of its own, and group its output here",
        )
    branches = state.branches
    if plan.decode.distinct is not None and branches > 1:
        raise TransformError(
            "dedup_by_in_branches",
            f"the pipeline sets `dedup: {{by: ...}}`, but the transforms use the rows in "
            f"{branches} branches ({state}). Spark would deduplicate each branch separately, and "
            "two branches could keep different records of the same key",
            hint="deduplicate in a separate pipeline that writes to a topic, and let this pipeline "
            "read that topic",
        )
    has_paths = any(name.startswith("TransformWithState") for name in state.operators)
    reason = f"the transforms keep state ({state})"
    _require_root(plan.names.checkpoints, reason, copied_in_s3=not has_paths)


def _require_root(checkpoints: str, reason: str, *, copied_in_s3: bool) -> None:
    """Raise TransformError if the checkpoint may be in a store where a run could lose it."""
    if local_path(checkpoints) is None and not (copied_in_s3 and is_in_bucket(checkpoints)):
        raise TransformError(
            "stateful_root_remote",
            f"{reason}, but the checkpoints are not in a folder of a local or mounted disk: "
            f"{checkpoints}",
            hint="set `state.root` to a folder on a local or mounted disk. In other stores a run "
            "that did not end cleanly is followed by another checkpoint folder. Only in S3 the "
            "state is copied there, and not that of transformWithState, which has paths in it "
            "(docs/state-roots.md)",
        )


def advance(frame: DataFrame) -> None:
    """Evaluate a committed micro-batch without output, so that Spark writes the next version of its
    state."""
    frame.write.format("noop").mode("append").save()


def require_state(
    plan: Plan, files: Files, location: str, position: Position, *, accepts_loss: bool
) -> bool:
    """Compare the checkpoint with the transforms: does only one of them have state? Return False if
    they fit.

    If they don't, raise PromiseBrokenError; with `accepts_loss`, return True instead, and the
    caller uses a fresh checkpoint. If no micro-batch was committed, there is no state to lose.
    """
    checkpoint = Checkpoint(files, location)
    has_state = checkpoint.planned() is not None
    has_state &= plan.is_dataframe or checkpoint.has_state()
    if position.batch_id < 0 or has_state == plan.is_stateful:
        return False
    if accepts_loss:
        return True
    name = plan.names.pipeline
    done = _position_text(position)
    if plan.is_dataframe:
        raise PromiseBrokenError(
            "dataframe_checkpoint_lost",
            f"{name}: there is no checkpoint with the offsets of the job's DataFrame {done}: "
            f"{location} has none. Only Spark's checkpoint knows them, so the job would read its "
            "source again from the start",
            hint="restore the checkpoint folder, and nothing is lost or repeated. Otherwise give "
            "the job a new name, and let its source start where this one ended; a job that reads "
            "by eos.read_kafka resumes by its ledger, without a checkpoint",
            pipeline=name,
        )
    if plan.is_stateful:
        message = f"the transforms keep state, but their state {done} is not in {location}"
        cause = (
            "was the checkpoint lost or set aside, is this another deployment, or did the "
            "transforms keep no state before? Restore the checkpoint"
        )
    else:
        message = (
            f"the transforms keep no state, but {location} has the state of other transforms {done}"
        )
        cause = "results that are not written yet would be lost. Restore the former transforms"
    raise PromiseBrokenError(
        "state_lost",
        f"{name}: {message}",
        hint=f"{cause}; or start with --accept-state-loss: {_RESTARTS}",
        pipeline=name,
    )


def unreadable_state(
    plan: Plan, location: str, position: Position, error: PromiseBrokenError
) -> PromiseBrokenError:
    """Return the error for a checkpoint that is unreadable, so that the state in it is lost."""
    name = plan.names.pipeline
    return PromiseBrokenError(
        "state_lost",
        f"{name}: {error.message}. The state of the transforms {_position_text(position)} is in "
        "that checkpoint",
        hint="restore the checkpoint's files, and nothing is lost. Otherwise start "
        f"with --accept-state-loss: {_RESTARTS}. `eos recover {name} --set-checkpoint-aside` only "
        "renames the damaged folder: it restores no state, and the next run still needs "
        "--accept-state-loss",
        pipeline=name,
        checkpoint=location,
    )


def _position_text(position: Position) -> str:
    return f"up to micro-batch {position.batch_id} of query {position.query_id}"


def without_state(position: Position) -> Position:
    """Return a position with the same ends that makes the run use a fresh checkpoint without
    state."""
    return replace(position, query_id="", batch_id=-1, is_reset=True)


def state_refusal(pipeline: str, failure: Failure) -> PromiseBrokenError | None:
    """Return the error to raise if Spark can't use the state in the checkpoint. Return None for
    other failures."""
    changed = failure.condition(*_CHANGED)
    missing = None if failure.condition(_IN_USE) else failure.condition(*_GONE)
    found = changed or missing
    if found is None:
        return None
    is_changed = changed is not None
    line = found.line[:500]
    reason = "was written by another plan" if is_changed else "can't be loaded"
    return PromiseBrokenError(
        "state_changed" if is_changed else "state_lost",
        f"{pipeline}: the state in the checkpoint {reason}: {line}",
        hint="restore the former transforms, or the checkpoint's files; or run `eos recover "
        f"{pipeline} --set-checkpoint-aside --yes`, which renames that checkpoint, and start with "
        f"--accept-state-loss: {_RESTARTS}",
        pipeline=pipeline,
    )
