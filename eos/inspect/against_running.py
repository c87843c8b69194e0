"""Comparison of a pipeline file with the running or last run: would a restart accept the file?

The ledger has the settings of the run's file (`plan.declared`). The errors are those of
`inspect.next_start`, which calls the startup's own checks. Nothing is fenced or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from eos.errors import EosError, exit_code
from eos.inspect.file_changes import Effect, changes, effects
from eos.inspect.layout import record_time
from eos.inspect.next_start import predict_settled
from eos.inspect.snapshot import Snapshot, short_deadline, take_snapshot
from eos.kafka.api import Api
from eos.kafka.client import KafkaClient
from eos.kafka.outcomes import describe
from eos.ledger.record import LedgerRecord
from eos.plan.plan import Plan
from eos.plural import plural
from eos.startup.deployment import with_known_deployment
from eos.startup.ownership import is_ours

_TIMEOUT = 50  # INVALID_TRANSACTION_TIMEOUT
_SPARK = (
    "at its first micro-batch, Spark compares the steps with the state in the checkpoint: other "
    "groups or columns stop the run (state_changed)"
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `eos plan --against-running`.

    `recorded` is the ledger record with the settings of the last run. It is None if there is no
    run, or if the last run's records have no settings; then `effects` is empty."""

    pipeline: str
    last: LedgerRecord | None
    recorded: LedgerRecord | None
    effects: Sequence[Effect]
    others: Sequence[EosError]  # errors that no change since the last run explains
    errors: Sequence[EosError]  # all errors, in the order of the startup's checks
    warnings: Sequence[str]
    is_elsewhere: bool  # another deployment runs it: files of this machine were not compared

    @property
    def exit_code(self) -> int:
        """Return 0 if a restart would accept the file, else the exit code of that restart."""
        return exit_code(self.errors[0]) if self.errors else 0

    def as_json(self) -> dict[str, Any]:
        run = None
        if self.last is not None:
            release = self.last.owner.get("version")
            run = {"at": record_time(self.last), "release": release, "kind": self.last.kind}
            run["deployment"] = self.last.owner["deployment"]
        return {
            "run": run,
            "settings_recorded": self.recorded is not None,
            "changes": [_effect_json(each) for each in self.effects],
            "stops": [_stop_json(each) for each in self.errors],
            "warnings": list(self.warnings),
            "state_root_compared": not self.is_elsewhere,
            "exit_code": self.exit_code,
        }


def compare(planned: Plan, client: KafkaClient) -> Comparison:
    """Compare the plan's pipeline file with the last run of the pipeline.

    The restart is assumed to be in the deployment of that run. If that is not this one, its files
    can't be seen from here, so checkpoint, states and Delta tables are not compared.
    """
    planned = with_known_deployment(planned)
    found = predict_settled(lambda: _in_its_deployment(take_snapshot(planned, client)))
    view, last = found.view, found.view.last
    found.errors += _timeout_errors(view)
    recorded = view.ledger.last_declared(short_deadline()) if last is not None else None
    result: list[Effect] = []
    others = list(found.errors)
    if recorded is not None and recorded.declared is not None:
        before, now = recorded.declared, planned.declared
        keeps_state = view.position.keeps_state
        differing = changes(before, now)
        result, others = effects(differing, before, now, found.errors, keeps_state=keeps_state)
    return Comparison(
        pipeline=view.name,
        last=last,
        recorded=recorded,
        effects=result,
        others=others,
        errors=found.errors,
        warnings=found.warnings,
        is_elsewhere=last is not None and not is_ours(planned, last),
    )


def _timeout_errors(view: Snapshot) -> list[EosError]:
    """Return the broker's error to the fence if the transaction timeout is above its limit. The
    list is empty if this user may not read the limit."""
    names, configured_ms = view.planned.names, view.planned.transaction_timeout_ms
    with suppress(EosError, ValueError):
        limit = view.client.broker_config("transaction.max.timeout.ms", short_deadline())
        if configured_ms > int(limit):
            return [describe(Api.INIT_PRODUCER_ID, _TIMEOUT, where=names.transactional_id)]
    return []


def _in_its_deployment(view: Snapshot) -> Snapshot:
    last = view.last
    if last is None or is_ours(view.planned, last):
        return view
    planned = replace(view.planned, deployment=str(last.owner["deployment"]), tables=())
    return replace(view, planned=planned, files=None)


def lines(found: Comparison) -> Iterator[str]:
    """Yield the comparison as text, one line for each change and indented lines about it."""
    yield _head(found)
    for each in found.effects:
        yield f"{each.verdict:<14}{each.change}"
        if each.errors:
            yield from _stop_lines(each.errors)
        else:
            yield f"{'':<14}  {_SPARK if each.is_compared_by_spark else each.text}"
    for error in found.others:
        yield f"{'stops':<14}{error.code}: no change of the file is the cause"
        yield from _stop_lines([error])
    for warning in found.warnings:
        yield f"{'note':<14}{warning}"
    if found.is_elsewhere:
        yield (
            f"{'note':<14}another deployment runs it, so its checkpoint, states and Delta tables "
            "were not compared"
        )
    yield _end(found)


def _head(found: Comparison) -> str:
    if found.last is None:
        return f"{found.pipeline}: no run yet, so there is nothing to compare"
    owner = found.last.owner
    run = f"the run of {_release(owner)} that last wrote a record at {record_time(found.last)}"
    if found.recorded is None:
        return f"{found.pipeline}: {run} recorded no settings: only the next start is checked"
    count = plural(len(found.effects), "change") if found.effects else "no change"
    return f"{found.pipeline}: {count} since {run}"


def _release(owner: Any) -> str:
    version = owner.get("version")
    return f"release {version}" if isinstance(version, str) else "an older release"


def _end(found: Comparison) -> str:
    if not found.errors and any(each.is_compared_by_spark for each in found.effects):
        return f"{'next start':<14}accepts this file, unless Spark refuses it for the state"
    if not found.errors:
        return f"{'next start':<14}accepts this file"
    return f"{'next start':<14}stops with exit code {found.exit_code}: {found.errors[0].code}"


def _stop_lines(errors: Sequence[EosError]) -> Iterator[str]:
    for error in errors:
        yield f"{'':<14}  {error.message}"
        if error.hint:
            yield f"{'':<14}  -> {error.hint}"


def _effect_json(each: Effect) -> dict[str, Any]:
    change = each.change
    return {
        "path": change.path,
        "before": change.before,
        "now": change.now,
        "verdict": each.verdict,
        "effect": each.text,
        "codes": [error.code for error in each.errors],
    }


def _stop_json(error: EosError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.recovery.value,
    }
