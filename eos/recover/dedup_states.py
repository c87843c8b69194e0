"""How does `eos recover` let dedup accept a gap, or forget the known producers?"""

from __future__ import annotations

from dataclasses import replace

from eos.errors import PromiseBrokenError, UsageError
from eos.inspect.snapshot import Snapshot
from eos.ledger.record import LedgerRecord
from eos.recover.change import LedgerChange, no_change
from eos.spark.dedup_run import state_versions


def accept_gap(view: Snapshot) -> LedgerChange:
    """Return the change of `--accept-gap`: the next micro-batch that commits accepts records after
    missing sequence numbers. Later micro-batches do not."""
    _require_dedup(view, "--accept-gap")
    before, verb = view.position, "--accept-gap"
    if before.accepts_gap:
        return no_change(verb, before, "the next micro-batch accepts gaps already")
    remarks = [
        "the next micro-batch that commits accepts records after a gap",
        "missing records that arrive later are `late`",
    ]
    after = replace(before, accepts_gap=True)
    return LedgerChange(verb, before, after, view.group(before.ends), remarks)


def forget_producers(view: Snapshot) -> LedgerChange:
    """Return the change of `--forget-producers`: no producer is known to dedup afterwards.

    It is for states that are lost, or that were written under other settings.
    """
    _require_dedup(view, "--forget-producers")
    before, verb = view.position, "--forget-producers"
    if not before.producers:
        return no_change(verb, before, "there are no states of producers")
    remarks = [
        "records that producers sent before and send again are written a second time",
        "each producer is unknown: `on_unknown` decides whether a sequence above 0 is accepted",
    ]
    after = replace(before, producers="")
    return LedgerChange(verb, before, after, view.group(before.ends), remarks)


def states_of(view: Snapshot, record: LedgerRecord) -> str:
    """Return the version of dedup's states that a ledger record names, for a rewind to it.

    Raise PromiseBrokenError if this version can't be used any more. But if no producer is known
    now, because an operator had all forgotten, return an empty version.
    """
    dedup, required = view.planned.dedup, record.position.producers
    if dedup is None:
        return required
    try:
        state_versions(view.planned, dedup).require(required)
    except PromiseBrokenError:
        if view.position.producers:
            raise
        return ""
    return required


def _require_dedup(view: Snapshot, verb: str) -> None:
    if view.planned.dedup is None:
        raise UsageError(
            "dedup_not_declared",
            f"{view.name}: {verb} is for a pipeline with `dedup`, and this one has none",
            hint=f"`eos recover {view.name}` shows what stops the next run, and the commands that "
            "fix it",
        )
    if view.last is None:
        raise UsageError(
            "pipeline_never_ran",
            f"{view.name}: the pipeline never ran, so it has no states of producers",
            hint=f"there is nothing to recover: start it with `eos run {view.name}`",
        )
