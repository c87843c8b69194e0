"""Pipelines in processes of their own, which are killed, paused, replaced and started again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from support.copies.owners import Forked
from support.copies.pipeline_copy import Job
from support.spark.processes import is_paused
from support.waiting import wait_until

from history.events import Event

FENCED = 3
_LOOKS_EVERY_S = 0.05
_OUTCOMES = {"MicroBatchCommitted": "ok", "AttemptFailed": "fail"}
MAY_END_WITH = {0, FENCED, 5, -signal.SIGKILL}


class Supervised:
    """A pipeline that a supervisor starts again whenever it ends, unless it was fenced."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.ends: Counter[int] = Counter()  # processes by exit code
        self.events: Counter[str] = Counter()  # of processes that have ended
        self.problems: list[str] = []
        self._reports: list[Event] = []  # of processes that have ended
        self._home, self._places = job.folder, 0
        self._takes_over = False  # a paused process is being replaced
        self._is_over = False
        self._lock = threading.Lock()
        self._process = self._started()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        with self._lock:
            return self._process.pid

    def reports(self) -> list[Event]:
        """Which attempts its processes reported as committed, and which as failed."""
        with self._lock:
            return [*self._reports, *self._reports_of(self._process)]

    def kill(self) -> None:
        """SIGKILL. The supervisor starts another process."""
        with self._lock:
            self._signal(self._process.pid, signal.SIGKILL)

    def replace_by_force(self, wait: Callable[[], None]) -> int:
        """Pause the process, start another one elsewhere with --take-over, wait, and wake the
        paused one. Its exit code."""
        with self._lock:
            older = self._process
            self._signal(older.pid, signal.SIGSTOP)
            wait_until(lambda: is_paused(older.pid) or older.poll() is not None)
            self._places += 1
            self._takes_over = True
            self.job = replace(self.job, folder=self._home / str(self._places))
            self._process = self._started()
        try:
            wait()
        finally:
            self._signal(older.pid, signal.SIGCONT)
        code = self._ended(older)
        self._takes_over = False
        return code

    def close(self) -> None:
        with self._lock:
            self._is_over = True
            process = self._process
            self._signal(process.pid, signal.SIGKILL)
        self._thread.join(300)

    def _started(self) -> Forked:
        return Forked(self.job, "--go-on", *(["--take-over"] if self._takes_over else []))

    def _supervise(self) -> None:
        while True:
            with self._lock:  # the process may have been replaced since the last look
                if self._process.poll() is not None:
                    self._ended(self._process)
                    if self._is_over:
                        return
                    self._process = self._started()
            time.sleep(_LOOKS_EVERY_S)

    def _ended(self, process: Forked) -> int:
        code = process.wait()
        self.ends[code] += 1
        for line in process.said():
            self.events[line["event"]] += 1
        self._reports += self._reports_of(process)
        if code not in MAY_END_WITH:
            self.problems.append(f"{self.job.name} ended with {code}: {process.said()[-3:]}")
        process.forget()
        return code

    def _reports_of(self, process: Forked) -> list[Event]:
        return [
            {
                "op": "report",
                "pipeline": self.job.name,
                "outcome": _OUTCOMES[line["event"]],
                "identity": line["identity"],
            }
            for line in process.said()
            if line["event"] in _OUTCOMES
        ]

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it has ended meanwhile
            return
