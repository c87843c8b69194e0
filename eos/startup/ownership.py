"""Who may run a pipeline: one process on a machine and state root, one deployment in the world.

A startup fences every older copy, so a copy that is started by mistake must be recognized before.
Two things decide, and neither is a clock. The running process holds a lock file in the state root:
the kernel drops it when the process dies, however it dies. And the ledger's last record names the
deployment that wrote it (`startup/deployment.py`): if that is another one than ours and did not end
cleanly, it may be alive, wherever it is.
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
from eos.ledger.record import LedgerRecord
from eos.local.file_locks import FileLock, has_no_locks
from eos.plan.plan import Plan

_LEFT = frozenset({"stop", "recovery"})  # kinds of a last record after which nobody runs


def owner(planned: Plan) -> Mapping[str, Any]:
    """Written into each record of the ledger. Releases before the one that writes `root` named the
    state root itself as the deployment, unless the profile named one."""
    return {
        "deployment": planned.deployment,
        "root": planned.names.state_root,
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
        try:
            self._is_held = self._lock.try_exclusive_past_looks()
        except OSError as error:
            if not has_no_locks(error):
                raise
            self._lock.close()
            self._lock = None  # as in a remote root: the deployment's name decides
            return True
        if self._is_held:
            self._lock.path.write_text(f"{os.getpid()}\n", encoding="ascii")
        return self._is_held

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


def require_free(planned: Plan, last: LedgerRecord | None, *, is_forced: bool) -> None:
    """The look before the fence. A clean stop leaves the pipeline to anybody, and so does a
    recovery: it fenced whoever ran, and nobody has started since."""
    if last is None or is_forced or is_free(planned, last):
        return
    theirs, root = last.owner, planned.names.state_root
    place = f"state root {theirs['root']}, " if theirs.get("root") else ""
    ours = f"{planned.deployment!r}" if planned.deployment else "a deployment without an id yet"
    here = f" (state root {root})" if root else ""
    lost = ""
    if root and root == (theirs.get("root") or theirs["deployment"]):
        lost = (
            f"Both name the state root {root}: is this another machine, or was its disk replaced? "
        )
    raise PromiseBrokenError(
        f"{planned.names.pipeline} belongs to deployment {theirs['deployment']!r} ({place}host "
        f"{theirs['host']}, process {theirs['process']}), which did not end cleanly and may run; "
        f"this is {ours}{here}, and it was left alone",
        hint=f"if this copy is a mistake, nothing is to be done. {lost}Otherwise make sure that "
        "the other one has ended, and start this one with --take-over, which fences it. With a "
        "`deployment:` in the profile that is unique and stable, such as a StatefulSet's pod name, "
        "a restart on another disk or machine needs no operator",
        case="another_deployment",
        pipeline=planned.names.pipeline,
    )


def is_free(planned: Plan, last: LedgerRecord | None) -> bool:
    """By the ledger: nobody else may run it."""
    return last is None or is_left(last) or is_ours(planned, last)


def is_ours(planned: Plan, last: LedgerRecord) -> bool:
    """Whether this deployment wrote the record.

    A record of an older release names the state root. Another machine may have one of that name,
    so such a record is ours only if its host is this machine.
    """
    theirs = last.owner.get("deployment")
    if planned.deployment and theirs == planned.deployment:
        return True
    is_old = "root" not in last.owner and theirs == planned.names.state_root
    return is_old and is_here(last)


def is_left(last: LedgerRecord) -> bool:
    """Nobody runs it since this record."""
    return last.kind in _LEFT


def is_here(last: LedgerRecord) -> bool:
    return bool(last.owner.get("host") == socket.gethostname())
