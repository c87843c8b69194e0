"""Who may run a pipeline? One process per machine and state root, and one deployment in all.

A startup fences every older instance. So an instance that was started by mistake must be detected
before its fence. Two facts decide, and neither uses a clock:
- The running process holds a lock file in the state root. The kernel releases it when the process
  dies, for any reason.
- The ledger's last record contains the deployment that wrote it (`startup/deployment.py`). If this
  is another deployment that did not stop cleanly, it may still run on any machine.

A driver that YARN has restarted has a third check, `_require_not_replaced`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import eos
from eos.errors import FencedError, PromiseBrokenError, UnavailableError
from eos.ledger.record import LedgerRecord
from eos.local.file_locks import FileLock, has_no_locks
from eos.plan.plan import Plan
from eos.startup import stop_marker
from eos.startup.lock_holder import LockHolder
from eos.startup.yarn_attempt import YarnAttempt, yarn_attempt

# After a ledger record of one of these kinds, no process runs the pipeline.
_LEFT = frozenset({"stop", "recovery"})


def owner(planned: Plan) -> Mapping[str, Any]:
    """Return the entry `owner` of a ledger record: which deployment, host and process wrote it.

    Records of older releases have no `root`: their deployment is the state root, unless the profile
    set one. Only a driver that YARN started has an `application`, and only a run has an id.
    """
    attempt = yarn_attempt()
    return {
        "deployment": planned.deployment,
        "root": planned.names.state_root,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "version": eos.__version__,
        **({"application": attempt.application} if attempt else {}),
        **({"run": planned.run_id} if planned.run_id else {}),
    }


class RunLock:
    """The lock file of one pipeline in one state root. The running process holds it.

    A remote state root has no lock. Then only the ledger's last record protects a running
    deployment, and the newest instance of a deployment fences the older ones.
    """

    def __init__(self, planned: Plan, run_id: str = "") -> None:
        """`run_id` is the id of this run. `eos stop` writes a stop marker with that id."""
        self._pipeline, self.run_id = planned.names.pipeline, run_id
        self._stops, self._is_dataframe = planned.names.stops, planned.is_dataframe
        path = planned.names.lock
        self._lock = FileLock(Path(path)) if path else None
        self._is_held = False

    def acquire(self, *, is_forced: bool) -> None:
        """Acquire the lock. Raise UnavailableError if another process holds it.

        With `is_forced`, continue without the lock: the startup's fence stops the other process.
        Not for a job's own DataFrame. A fenced process that wakes up may overwrite a plan in the
        checkpoint, and only offsets of Kafka are compared with the plan that runs.
        """
        if self.try_acquire() or (is_forced and not self._is_dataframe):
            return
        assert self._lock is not None
        holder = LockHolder()
        with suppress(OSError):
            holder = LockHolder.read(self._lock.path)
        raise UnavailableError(
            "already_running",
            f"{self._pipeline} already runs {holder}; it was not disturbed",
            hint=(f"`eos stop {self._pipeline}` ends it" if holder.run_id else "end that process")
            + (
                ""
                if self._is_dataframe
                else ", or start this one with --take-over, which fences it"
            ),
            path=str(self._lock.path),
        )

    def try_acquire(self) -> bool:
        if self._lock is None or self._is_held:
            return True
        try:
            self._is_held = self._lock.try_exclusive_past_looks()
        except OSError as error:
            if not has_no_locks(error):
                raise
            self._lock.close()
            self._lock = None  # no lock, as in a remote state root
            return True
        if self._is_held:
            if self.run_id and self._stops:
                stop_marker.clear(Path(self._stops))  # before the lock file has this run's id
            LockHolder.this_process(self.run_id).write(self._lock.path)
        return self._is_held

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


def require_free(
    planned: Plan,
    last: LedgerRecord | None,
    *,
    is_forced: bool,
    attempt: YarnAttempt | None = None,
) -> None:
    """Raise PromiseBrokenError if the ledger's last record shows that another deployment may still
    run the pipeline. Call this before the fence. `attempt` is this process's, if YARN started it.

    After a clean stop any deployment may acquire the pipeline. The same is true after a recovery,
    because it fenced the previous owner.
    """
    _require_not_replaced(planned, last, attempt)
    if last is None or is_forced or is_free(planned, last):
        return
    theirs, root = last.owner, planned.names.state_root
    prefix = f"state root {theirs['root']}, " if theirs.get("root") else ""
    ours = f"{planned.deployment!r}" if planned.deployment else "a deployment without an id yet"
    here = f" (state root {root})" if root else ""
    lost = ""
    other, host, process = theirs["deployment"], theirs["host"], theirs["process"]
    if root and root == (theirs.get("root") or other):
        lost = (
            f"Both have the state root {root}: is this another machine, or was its disk replaced? "
        )
    raise PromiseBrokenError(
        "another_deployment",
        f"{planned.names.pipeline} belongs to deployment {other!r} ({prefix}host {host}, process "
        f"{process}), which did not end cleanly and may still run; this is {ours}{here}. The "
        "other one was not disturbed",
        hint=f"if this instance is a mistake, do nothing. {lost}Otherwise make sure that "
        "the other one has ended, and start this one with --take-over, which fences it. With a "
        "`deployment:` in the profile that is unique and stable, such as a StatefulSet's pod name, "
        "a restart on another disk or machine needs no operator",
        pipeline=planned.names.pipeline,
    )


def _require_not_replaced(
    planned: Plan, last: LedgerRecord | None, attempt: YarnAttempt | None
) -> None:
    """Raise FencedError if this is a restart, and another instance wrote the ledger's last record
    after this application was submitted.

    That instance fenced the application, or began after its end. If the restart fenced it in turn,
    two applications of the same deployment would take the pipeline from each other again and again.
    The clocks are those of YARN and of the other instance's machine. If they differ, the restart
    may be refused without need, and an operator submits the pipeline again.
    """
    if attempt is None or not attempt.is_restart or last is None or has_ended_cleanly(last):
        return
    theirs = last.owner.get("application")
    if theirs == attempt.application or last.at_ms < attempt.submitted_ms:
        return
    host, process = last.owner.get("host"), last.owner.get("process")
    other = f"{theirs}, " if theirs else ""
    raise FencedError(
        "replaced_before_restart",
        f"{planned.names.pipeline}: attempt {attempt.number} of {attempt.application} does not "
        f"start, because another instance ({other}host {host}, process {process}) has run the "
        "pipeline since this application was submitted",
        hint="if the other instance is a mistake, end it and submit this pipeline again",
        pipeline=planned.names.pipeline,
    )


def is_free(planned: Plan, last: LedgerRecord | None) -> bool:
    """Return whether the ledger shows that no other deployment runs the pipeline."""
    return last is None or has_ended_cleanly(last) or is_ours(planned, last)


def is_ours(planned: Plan, last: LedgerRecord) -> bool:
    """Return whether this deployment wrote the ledger record.

    Records of older releases have the state root in place of a deployment. Another machine may use
    the same path, so such a record is ours only if its host is this machine.
    """
    theirs = last.owner.get("deployment")
    if planned.deployment and theirs == planned.deployment:
        return True
    is_old = "root" not in last.owner and theirs == planned.names.state_root
    return is_old and is_here(last)


def has_ended_cleanly(last: LedgerRecord) -> bool:
    """Return whether this last record of a ledger proves that no process runs the pipeline."""
    return last.kind in _LEFT


def is_here(last: LedgerRecord) -> bool:
    return bool(last.owner.get("host") == socket.gethostname())
