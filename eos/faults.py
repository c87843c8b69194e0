"""Crash points of a micro-batch, at which a test or `--demo-crash` kills the pipeline.

Crash points are inactive unless EOS_CRASH_AT is set: `<point>:<before|after>:<python|jvm|both>`.
The driver reads it once. Writers get the same plan with the driver's process ids, because the first
Produce happens in a Python worker. The point is appended to EOS_CRASH_LOG before a process dies, so
that a test can assert that the fault occurred.

A transaction without a micro-batch has the same points with its kind in front: `stop.end_txn_sent`.
With EOS_CRASH_SIGNAL=STOP the processes are paused once instead of killed. If another instance
takes over before they continue, they are zombies.

EOS_TASK_FAULTS lists faults on executors, separated by spaces:

    <batch id>/<point>:<before|after>:<victim>

Each fault happens once, in the first task that reaches its point, and leaves a file of its name in
EOS_TASK_FAULTS_FOLDER. Several faults of one micro-batch happen in successive attempts.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Sequence
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
# Points that only some pipelines reach:
# - dead_letters: around the write of dead letters, if records were rejected
# - judging: around the validation, if dedup validates after writing
# - producers: around the commit of producers' states, with dedup
# - tables: around the write of the tables, with Delta sinks
POINTS_OF_SOME = ("dead_letters", "judging", "producers", "tables")
KINDS = ("start", "refresh", "stop", "recovery")
MOMENTS = ("before", "after")
VICTIMS = ("python", "jvm", "both")
TASK_POINTS = ("encode", "first_produce", "written")
# Victims that are killed:
# - worker: the Python worker that runs the task
# - executor: the JVM to which this worker belongs
# - machine: this JVM and its parent process, which would start another one
#
# shuffle: the files that the JVM has written for the next stage are removed.
#
# Victims that are paused:
# - frozen: worker and JVM, as on a machine that stops
# - hung: the worker only
TASK_VICTIMS = ("worker", "executor", "machine", "shuffle", "frozen", "hung")
_SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP}


@dataclass(frozen=True, slots=True)
class CrashPlan:
    """The planned crash point and the processes to kill there. The default plan kills none."""

    point: str = ""
    victims: tuple[int, ...] = ()
    driver: int = 0
    log: str = ""
    number: int = signal.SIGKILL
    tasks: tuple[TaskFault, ...] = ()

    @classmethod
    def from_environment(cls, jvm: int | None = None) -> CrashPlan:
        """Return the plan from the environment. Only the driver calls this.

        `jvm` is the process id of its JVM. By default it is the driver's parent, which spark-submit
        started."""
        text = os.environ.get("EOS_CRASH_AT", "")
        if not text:
            return cls(tasks=_task_faults())
        parts = text.split(":")
        kind, dot, point = parts[0].rpartition(".")
        points = (*POINTS, *POINTS_OF_SOME)
        known = len(parts) == 3 and point in points and parts[1] in MOMENTS
        if not known or parts[2] not in VICTIMS or (dot and kind not in KINDS):
            raise UsageError(
                "crash_point_invalid",
                f"EOS_CRASH_AT is {text!r}, which is no crash point",
                hint="expected POINT:before|after:python|jvm|both, with POINT one of "
                f"{', '.join(points)}",
            )
        driver, jvm = os.getpid(), os.getppid() if jvm is None else jvm
        victims = {"python": (driver,), "jvm": (jvm,), "both": (jvm, driver)}[parts[2]]
        log = os.environ.get("EOS_CRASH_LOG", "")
        name = os.environ.get("EOS_CRASH_SIGNAL", "KILL")
        if name not in _SIGNALS or (name == "STOP" and not log):
            raise UsageError(
                "crash_signal_invalid",
                f"EOS_CRASH_SIGNAL is {name!r}, and EOS_CRASH_LOG is {log!r}",
                hint="set EOS_CRASH_SIGNAL to KILL, or to STOP together with EOS_CRASH_LOG",
            )
        return cls(f"{parts[0]}:{parts[1]}", victims, driver, log, _SIGNALS[name])

    def of_tasks(self, batch_id: int) -> Dies:
        """Return the plan for the tasks of an attempt at this micro-batch: its next task fault,
        else this plan."""
        left = (each for each in self.tasks if each.batch_id == batch_id and not each.has_struck)
        return next(left, self)

    def reached(self, point: str) -> None:
        """Kill the victims if this is the planned point. Otherwise this costs one comparison."""
        if point != self.point:
            return
        is_pause = self.number == signal.SIGSTOP
        if is_pause and Path(self.log).exists():
            return  # the log shows that the pause has happened
        if self.log:
            with Path(self.log).open("a", encoding="utf-8") as log:
                log.write(f"{point} {os.getpid()}\n")
                log.flush()
                os.fsync(log.fileno())
        # This process dies last, because it has to kill the others first.
        for pid in sorted(self.victims, key=lambda pid: pid == os.getpid()):
            with contextlib.suppress(ProcessLookupError):  # another task killed it first
                if pid != os.getpid():
                    os.kill(pid, self.number)
                else:
                    self._strike_here()
        # If only the JVM is killed, the driver continues until it notices, as in a real crash. A
        # task must send nothing after this point: its record batches must remain those of a
        # half-written attempt.
        if os.getpid() != self.driver:
            if not is_pause:
                os._exit(137)
            self._strike_here()

    def _strike_here(self) -> None:
        """Send the signal to this thread. A signal to the process may be handled by another thread,
        and this one would run past the crash point meanwhile."""
        signal.pthread_kill(threading.get_ident(), self.number)


@dataclass(frozen=True, slots=True)
class TaskFault:
    """A fault in one task of a micro-batch. It happens once, so the next attempt runs normally."""

    batch_id: int
    point: str
    victim: str
    folder: str

    @property
    def _mark(self) -> Path:
        return Path(self.folder) / f"{self.batch_id}.{self.point.replace(':', '.')}.{self.victim}"

    @property
    def has_struck(self) -> bool:
        return self._mark.exists()

    def reached(self, point: str) -> None:
        if point != self.point:
            return
        chain = _ancestors_to_the_jvm()
        unfinished = self._mark.with_name(f"{self._mark.name}.{os.getpid()}")
        unfinished.write_text(" ".join(map(str, chain)), encoding="ascii")
        try:
            self._mark.hardlink_to(unfinished)  # only the first task can create the link
        except FileExistsError:
            return
        finally:
            unfinished.unlink()
        if self.victim == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.victim in {"executor", "machine"}:
            if self.victim == "machine":
                os.kill(_parent(chain[-1]), signal.SIGKILL)
            os.kill(chain[-1], signal.SIGKILL)
            os._exit(137)  # after the JVM's death its workers live on, and may send
        elif self.victim in {"frozen", "hung"}:
            paused = chain if self.victim == "frozen" else chain[:1]
            for pid in reversed(
                paused
            ):  # this process last; the test resumes this process, which decides about the others
                os.kill(pid, signal.SIGSTOP)
            self._mark.with_name(f"{self._mark.name}.woken").touch()
        else:
            for data in _shuffle_files():
                data.unlink(missing_ok=True)


def _task_faults() -> tuple[TaskFault, ...]:
    found = []
    folder = os.environ.get("EOS_TASK_FAULTS_FOLDER", "")
    pattern = f"(\\d+)/((?:{_any(TASK_POINTS)}):(?:{_any(MOMENTS)})):({_any(TASK_VICTIMS)})"
    for text in os.environ.get("EOS_TASK_FAULTS", "").split():
        match = re.fullmatch(pattern, text)
        if not match or not folder:
            raise UsageError(
                "task_fault_invalid",
                f"EOS_TASK_FAULTS has {text!r}, and EOS_TASK_FAULTS_FOLDER is {folder!r}",
                hint="set EOS_TASK_FAULTS_FOLDER, and faults like 3/first_produce:before:worker",
            )
        found.append(TaskFault(int(match[1]), match[2], match[3], folder))
    return tuple(found)


def _any(text: Sequence[str]) -> str:
    return "|".join(text)


def _ancestors_to_the_jvm() -> list[int]:
    """Return the process ids of this worker, the daemon that forked it, and the executor
    (Linux)."""
    chain = [os.getpid()]
    while len(chain) < 5:
        comm = Path(f"/proc/{chain[-1]}/comm").read_text(encoding="utf-8")
        if comm.strip() == "java":
            return chain
        chain.append(_parent(chain[-1]))
    raise UsageError(
        "task_fault_without_jvm",
        f"this worker has no JVM among its parent processes: {chain}",
        hint="EOS_TASK_FAULTS works in Spark's Python workers on Linux only",
    )


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])


def _shuffle_files() -> list[Path]:
    roots = os.environ.get("SPARK_EXECUTOR_DIRS", "").split(os.pathsep)
    return [path for root in roots if root for path in Path(root).rglob("shuffle_*.data")]


class Dies(Protocol):
    """A crash plan, or its substitute in a test that has no processes to kill."""

    @property
    def point(self) -> str: ...

    def reached(self, point: str) -> None: ...


class Points:
    """The crash points of the driver's transactions. In a transaction without a micro-batch, `kind`
    is put before the point's name."""

    def __init__(self, plan: Dies) -> None:
        self.plan = plan
        self.kind = ""

    def reached(self, point: str) -> None:
        self.plan.reached(f"{self.kind}.{point}" if self.kind else point)
