"""What differs for a pipeline that keeps state between its micro-batches.

A stateless pipeline runs its steps inside `foreachBatch`, on rows that still have their offsets. A
stateful one runs them before it, inside Spark's own plan of the stream, since Spark keeps the
state. For micro-batch N, Spark reads version N of the state and writes version N+1, each time that
the frame is evaluated. The consequences:

- A retried micro-batch is evaluated again from version N. Spark does the same when it repeats one
  after a crash.
- A micro-batch that is already committed is evaluated again without output, because the next one
  needs version N+1 (`advance`). This happens after a crash between EndTxn and Spark's commit log.
- Rows below an offset can't be dropped, so a micro-batch is run whole or not at all.
- If a checkpoint is lost, the state is lost with it. The ledger knows where to resume, but not what
  was counted so far. The startup stops unless an operator accepts that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eos.checkpoint.files import Files
from eos.checkpoint.offset_log import Checkpoint
from eos.errors import PromiseBrokenError, TransformError
from eos.ledger.record import Position
from eos.location import local_path
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
    "it takes a fresh checkpoint at the ledger's ends, every total restarts from nothing there, "
    "and the ledger keeps that decision"
)
_IN_USE = "CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR"  # an earlier task still uses it


def with_state(plan: Plan, state: PlanState, bus: Bus) -> Plan:
    """Return the plan as a stateful one if its transforms keep state. Raise TransformError if it
    can't."""
    require_allowed(plan, state)
    if not state.operators:
        return plan
    if not state.is_bounded:
        bus.emit(
            events.Warned(
                f"the transforms keep state ({state}) without a watermark: it grows with every "
                "new key, for ever; withWatermark() lets Spark forget what is over"
            )
        )
    return replace(plan, is_stateful=True, decode=replace(plan.decode, is_strict=True))


def require_allowed(plan: Plan, state: PlanState) -> None:
    """Raise TransformError if a setting of the plan does not fit the state that its transforms
    keep, or fits only transforms that keep state."""
    if not state.operators:
        if plan.output_mode != "append":
            raise TransformError(
                "output_mode_without_state",
                f"`output_mode: {plan.output_mode}` is for pipelines that keep state, and the "
                "transforms treat each record by itself",
                hint="leave it out",
            )
        return
    answers = {each.on_error for each in plan.decode.causes} - {"fail"}
    if answers:
        raise TransformError(
            "on_error_with_state",
            f"the pipeline says `on_error: {min(answers)}`, and the transforms keep state "
            f"({state}): what is left out could not be counted before the commit",
            hint="say `on_error: fail`, or let a pipeline without state sort them out before",
        )
    if plan.dedup is not None:
        raise TransformError(
            "dedup_with_state",
            f"the pipeline says `dedup`, and the transforms keep state ({state}): Spark evaluates "
            "them before the micro-batch is told of",
            hint="let a pipeline of its own leave the duplicates out, and group what it wrote",
        )
    if plan.decode.distinct is not None and state.branches > 1:
        raise TransformError(
            "dedup_by_in_branches",
            f"the pipeline says `dedup: {{by: ...}}`, and the transforms use the rows in "
            f"{state.branches} branches ({state}): each would remember keys of its own, and could "
            "take another record as the first",
            hint="let a pipeline of its own leave the duplicates out, and join what it wrote",
        )
    if local_path(plan.names.checkpoints) is None:
        raise TransformError(
            "stateful_root_remote",
            f"the transforms keep state ({state}), and the state root is not a folder of a local "
            f"or mounted disk: {plan.names.checkpoints}",
            hint="elsewhere each unclean end takes a fresh checkpoint (docs/checkpoints.md), and "
            "the state would be lost with it",
        )


def advance(frame: DataFrame) -> None:
    """Evaluate a committed micro-batch without output, so that Spark writes the next version of its
    state."""
    frame.write.format("noop").mode("append").save()


def require_state(
    plan: Plan, files: Files, location: str, position: Position, *, accepts_loss: bool
) -> bool:
    """Raise PromiseBrokenError if resuming with this checkpoint would lose state. Either the
    transforms keep state and the checkpoint has none, or the reverse. Return True if `accepts_loss`
    allows the loss: then use a fresh checkpoint.

    The ledger shows whether there was any state. A checkpoint without a planned micro-batch is
    fresh.
    """
    checkpoint = Checkpoint(files, location)
    has_state = checkpoint.planned() is not None and checkpoint.has_state()
    if position.batch_id < 0 or has_state == plan.is_stateful:
        return False
    if accepts_loss:
        return True
    name = plan.names.pipeline
    done = _counted(position)
    if plan.is_stateful:
        told = f"the transforms keep state, and what they counted {done} is not in {location}"
        cause = (
            "was the checkpoint lost or set aside, is this another deployment, or did the "
            "transforms keep no state before? Put it back"
        )
    else:
        told = f"the transforms keep no state, but {location} holds what others counted {done}"
        cause = "what they counted and did not tell yet would be lost. Put them back"
    raise PromiseBrokenError(
        "state_lost",
        f"{name}: {told}",
        hint=f"{cause}; or start with --accept-state-loss: {_RESTARTS}",
        pipeline=name,
    )


def unreadable_state(
    plan: Plan, location: str, position: Position, error: PromiseBrokenError
) -> PromiseBrokenError:
    """Return the error for a checkpoint that can't be read, so that its state is lost."""
    name = plan.names.pipeline
    return PromiseBrokenError(
        "state_lost",
        f"{name}: {error.message}. The state that the transforms keep, of what they counted "
        f"{_counted(position)}, is lost with that checkpoint",
        hint="put the checkpoint's files back as they were, and nothing is lost. Otherwise start "
        f"with --accept-state-loss: {_RESTARTS}. `eos recover {name} --set-checkpoint-aside` only "
        "keeps the damaged folder under another name: it brings no state back, and the next run "
        "needs --accept-state-loss all the same",
        pipeline=name,
        checkpoint=location,
    )


def _counted(position: Position) -> str:
    return f"up to micro-batch {position.batch_id} of query {position.query_id}"


def forgotten(position: Position) -> Position:
    """Return the position that resumes at the same ends, in a fresh checkpoint without any
    state."""
    return replace(position, query_id="", batch_id=-1, is_reset=True)


def state_refusal(pipeline: str, failure: Failure) -> PromiseBrokenError | None:
    """Return our error if Spark refused the state of a checkpoint, or None for any other
    failure."""
    changed = failure.condition(*_CHANGED)
    gone = None if failure.condition(_IN_USE) else failure.condition(*_GONE)
    found = changed or gone
    if found is None:
        return None
    is_changed = changed is not None
    line = found.line[:500]
    told = "was written by another plan" if is_changed else "can't be loaded"
    return PromiseBrokenError(
        "state_changed" if is_changed else "state_lost",
        f"{pipeline}: the state in the checkpoint {told}: {line}",
        hint="put the transforms, or the checkpoint's files, back as they were; or `eos recover "
        f"{pipeline} --set-checkpoint-aside`, which takes that checkpoint away, and start with "
        f"--accept-state-loss: {_RESTARTS}",
        pipeline=pipeline,
    )
