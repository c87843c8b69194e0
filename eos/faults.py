"""Named points of a micro-batch at which a test, or `--demo-crash`, may kill the pipeline.

Inert unless EOS_CRASH_AT is set: `<point>:<before|after>:<python|jvm|both>`. The driver reads it
once; writers get the same plan with the driver's process ids in it, since the first Produce
happens in a Python worker. Before anything dies the point is appended to EOS_CRASH_LOG, so that
a test can tell that its fault was hit.

A transaction that is no micro-batch has the same points behind its kind: `stop.end_txn_sent`. With
EOS_CRASH_SIGNAL=STOP the victims are paused, once, instead of killed: a zombie, if somebody else
takes over before it is continued.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eos.errors import UsageError

POINTS = (
    "begin",
    "first_produce",
    "all_acked",
    "ledger_record",
    "offsets",
    "end_txn_sent",
    "end_txn_answered",
    "commit_log",
)
KINDS = ("start", "refresh", "stop", "recovery")
MOMENTS = ("before", "after")
VICTIMS = ("python", "jvm", "both")
_SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class CrashPlan:
    """Where to die and which processes go. The default dies nowhere."""

    point: str = ""
    victims: tuple[int, ...] = ()
    driver: int = 0
    log: str = ""
    number: int = signal.SIGKILL

    @classmethod
    def from_environment(cls) -> CrashPlan:
        """Called by the driver: the JVM that spark-submit started is its parent."""
        text = os.environ.get("EOS_CRASH_AT", "")
        if not text:
            return cls()
        parts = text.split(":")
        kind, dot, point = parts[0].rpartition(".")
        known = len(parts) == 3 and point in POINTS and parts[1] in MOMENTS
        if not known or parts[2] not in VICTIMS or (dot and kind not in KINDS):
            raise UsageError(
                f"EOS_CRASH_AT is {text!r}, which names no crash point",
                hint=f"POINT:before|after:python|jvm|both, POINT one of {', '.join(POINTS)}",
            )
        driver, jvm = os.getpid(), os.getppid()
        victims = {"python": (driver,), "jvm": (jvm,), "both": (jvm, driver)}[parts[2]]
        log = os.environ.get("EOS_CRASH_LOG", "")
        name = os.environ.get("EOS_CRASH_SIGNAL", "KILL")
        if name not in _SIGNALS or (name == "STOP" and not log):
            raise UsageError(
                f"EOS_CRASH_SIGNAL is {name!r}, and EOS_CRASH_LOG is {log!r}",
                hint="KILL, or STOP with a log: that there is one tells that the pause was made",
            )
        return cls(f"{parts[0]}:{parts[1]}", victims, driver, log, _SIGNALS[name])

    def reached(self, point: str) -> None:
        """Dies here if this is the planned point; otherwise costs one comparison."""
        if point != self.point:
            return
        is_pause = self.number == signal.SIGSTOP
        if is_pause and Path(self.log).exists():
            return  # it was continued
        if self.log:
            with Path(self.log).open("a", encoding="utf-8") as log:
                log.write(f"{point} {os.getpid()}\n")
                log.flush()
                os.fsync(log.fileno())
        # This process goes last, or it would not live to kill the others.
        for pid in sorted(self.victims, key=lambda pid: pid == os.getpid()):
            with contextlib.suppress(ProcessLookupError):  # another writer was here first
                os.kill(pid, self.number)
        # A driver whose JVM alone died goes on, as it would in earnest, until it notices. A
        # writer sends nothing more: its record batches must stay those of a half-written attempt.
        if os.getpid() != self.driver:
            if not is_pause:
                os._exit(137)
            os.kill(os.getpid(), self.number)


class Dies(Protocol):
    """A crash plan, or what stands for it in a test without processes."""

    def reached(self, point: str) -> None: ...


class Points:
    """Where a transaction is: told to the plan, with the kind of what is no micro-batch."""

    def __init__(self, plan: Dies) -> None:
        self.plan = plan
        self.kind = ""

    def reached(self, point: str) -> None:
        self.plan.reached(f"{self.kind}.{point}" if self.kind else point)
