"""Does a pipeline run now? `eos status` and `eos recover` use this answer.

If the state root has a lock, only the lock decides. A process id is less reliable:
- After a process died, `kill` still finds its id until its parent has waited for it. Its lock is
  already released.
- Later another process may get the same id.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from eos.ledger.record import LedgerRecord
from eos.local.file_locks import is_held
from eos.plan.plan import Plan
from eos.startup.lock_holder import LockHolder
from eos.startup.ownership import has_ended_cleanly, is_here, is_ours

_ENDED = frozenset("ZX")  # process states of a dead process whose parent has not waited for it


class Liveness(Enum):
    YES = "yes"
    NO = "no"
    DIED = "died"  # does not run, and did not stop cleanly
    UNKNOWN = "unknown"  # may run on another machine


def liveness_of(planned: Plan, last: LedgerRecord | None) -> tuple[Liveness, int | None]:
    """Return whether the pipeline runs, and its process id if known.

    The lock of the state root decides. Without a lock, check the process that wrote the ledger's
    last record, if it ran on this machine.
    """
    lock = planned.names.lock
    if lock and is_held(Path(lock)):
        return Liveness.YES, LockHolder.read(Path(lock)).process
    if last is None or has_ended_cleanly(last):
        return Liveness.NO, None
    if lock:
        return (Liveness.DIED if is_ours(planned, last) else Liveness.UNKNOWN), None
    if not is_here(last):
        return Liveness.UNKNOWN, None
    process = last.owner.get("process")
    if isinstance(process, int) and _lives(process):
        return Liveness.YES, process
    return Liveness.DIED, None


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return _state(process) not in _ENDED


def _state(process: int) -> str:
    """Return the letter of the process's state in /proc; "" if there is none."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].strip()[:1]  # a process name may contain ")"
