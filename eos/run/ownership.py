"""Who may run a pipeline: one process on a machine and state root, one deployment in the world.

A start fences every older copy, so a copy that is started by mistake must be told apart before.
Two things tell, and neither is a clock. A lock file in the state root is held by whoever runs: the
kernel drops it when its holder dies, however it dies. And the ledger's last record says which
deployment wrote it: another one than ours that did not end cleanly may be alive, wherever it is.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import eos
from eos.errors import PromiseBrokenError, UnavailableError
from eos.launch.locks import FileLock
from eos.plan.plan import Plan
from eos.transaction.ledger_record import Record

_LEFT = frozenset({"stop", "recovery"})  # kinds of a last record after which nobody runs


def owner(planned: Plan) -> Mapping[str, Any]:
    """Written into each record of the ledger."""
    return {
        "deployment": planned.deployment,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "version": eos.__version__,
    }


class RunLock:
    """The lock of one pipeline in one state root. Remote roots have none: the fence decides."""

    def __init__(self, planned: Plan) -> None:
        self._pipeline = planned.names.pipeline
        place = planned.names.lock
        self._lock = FileLock(Path(place)) if place else None
        self._is_held = False

    def take(self, *, is_forced: bool) -> None:
        """With force the holder is fenced and ends by itself, so the lock is only tried."""
        if self.try_take() or is_forced:
            return
        assert self._lock is not None
        number = ""
        with suppress(OSError):
            number = self._lock.path.read_text(encoding="ascii").strip()
        who = f" as process {number}" if number else ""  # it may be about to write it
        raise UnavailableError(
            f"{self._pipeline} already runs on this machine{who}; it was left alone",
            hint="end that process, or start this one with --take-over, which fences it",
            case="already_running",
            path=str(self._lock.path),
        )

    def try_take(self) -> bool:
        if self._lock is None or self._is_held:
            return True
        self._is_held = self._lock.try_exclusive_past_looks()
        if self._is_held:
            self._lock.path.write_text(f"{os.getpid()}\n", encoding="ascii")
        return self._is_held

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


def require_free(planned: Plan, last: Record | None, *, is_forced: bool) -> None:
    """The look before the fence. A clean stop leaves the pipeline to anybody, and so does a
    recovery: it fenced whoever ran, and nobody has started since."""
    if last is None or is_forced or is_free(planned, last):
        return
    theirs = last.owner
    raise PromiseBrokenError(
        f"{planned.names.pipeline} belongs to deployment {theirs['deployment']!r} (host "
        f"{theirs['host']}, process {theirs['process']}), which did not end cleanly and may run; "
        f"this is {planned.deployment!r}, and it was left alone",
        hint="if this copy is a mistake, nothing is to be done. Otherwise end the other one, or "
        "start this one with --take-over, which fences it",
        case="another_deployment",
        pipeline=planned.names.pipeline,
    )


def is_free(planned: Plan, last: Record | None) -> bool:
    """By the ledger: nobody else may run it."""
    return last is None or is_left(last) or is_ours(planned, last)


def is_ours(planned: Plan, last: Record) -> bool:
    return bool(last.owner.get("deployment") == planned.deployment)


def is_left(last: Record) -> bool:
    """Nobody runs it since this record."""
    return last.kind in _LEFT


def is_here(last: Record) -> bool:
    return bool(last.owner.get("host") == socket.gethostname())
