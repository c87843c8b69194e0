"""Does a pipeline run: one answer for `eos status` and `eos recover`.

The kernel drops the lock of a process that dies before its parent has waited for it, and until then
a signal still finds the process. Its number may be another process's later. So where there is a
lock, the lock alone decides.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

from eos.ledger.record import LedgerRecord
from eos.local.file_locks import is_held
from eos.plan.plan import Plan
from eos.startup.ownership import is_here, is_left, is_ours

_ENDED = frozenset("ZX")  # dead, and not waited for yet


class Liveness(Enum):
    YES = "yes"
    NO = "no"
    DIED = "died"  # it does not run, and wrote no clean end
    UNKNOWN = "unknown"  # it would run on another machine


def liveness_of(planned: Plan, last: LedgerRecord | None) -> tuple[Liveness, int | None]:
    """Return whether it runs, and its process where that is known. A state root without a lock:
    the process that wrote the last record, if it lives on this machine."""
    lock = planned.names.lock
    if lock and is_held(Path(lock)):
        text = Path(lock).read_text(encoding="ascii", errors="replace").strip()
        return Liveness.YES, int(text) if text.isdigit() else None
    if last is None or is_left(last):
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
    """Linux's letter for the process's state; empty where there is no such letter."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].strip()[:1]  # after its name, which may hold anything
