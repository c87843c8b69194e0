"""Copies of a pipeline as processes that a test may pause and wake, many of them at a time.

Each is a process of its own, forked from one that has imported everything already: it costs some
milliseconds, where a new interpreter takes a second. It ends with the test's process, paused or
not.

    with Forked(job, "--go-on", EOS_CRASH_AT=..., EOS_CRASH_SIGNAL="STOP") as older:
        older.wait_paused()
        older.wake()
        assert older.wait() == 3
"""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eos.local.processes import end_with_parent
from support import copy
from support.processes import stands_still

WAIT_S_MAX = 600  # a bound, not a measure
_POLL_S = 0.005
_forks = multiprocessing.get_context("forkserver")
# What `support.copy` imports, and what pyarrow does when it is first used.
_forks.set_forkserver_preload(
    [
        "eos.startup.resume_position",
        "eos.run.idle_refresh",
        "eos.transaction.writer",
        "pandas",
        "encodings.idna",
    ]
)
_one_at_a_time = threading.Lock()


class Forked:
    """A copy that is run by `support.copy.main`, with an environment and a log of its own."""

    def __init__(self, job: copy.Job, *options: str, **environment: str) -> None:
        job.folder.mkdir(parents=True, exist_ok=True)
        self._log = job.folder / f"{time.monotonic_ns()}.log"
        self.pause = job.folder / f"{time.monotonic_ns()}.paused"
        given = {"EOS_CRASH_LOG": str(self.pause), **environment}
        self._process = _forks.Process(
            target=_run, args=([*copy.words(job), *options], given, self._log), daemon=True
        )
        with _one_at_a_time:
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def __enter__(self) -> Forked:  # noqa: PYI034 - typing.Self begins with 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def said(self) -> list[Mapping[str, Any]]:
        """Its lines so far."""
        whole, _, _ = (self._log.read_text() if self._log.exists() else "").rpartition("\n")
        lines = whole.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def told(self, event: str) -> list[Mapping[str, Any]]:
        return [line for line in self.said() if line["event"] == event]

    def wait_paused(self) -> None:
        self.wait_until(lambda: self.pause.exists() and stands_still(self.pid), "did not pause")

    def wait_told(self, event: str, times: int = 1) -> None:
        self.wait_until(lambda: len(self.told(event)) >= times, f"did not say {event!r}")

    def wake(self) -> None:
        assert stands_still(self.pid), f"it is not paused:\n{self._words()}"
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Its exit code."""
        multiprocessing.connection.wait([self._process.sentinel], WAIT_S_MAX)
        code = self._code()
        assert code is not None, f"no end in time:\n{self._words()}"
        return code

    def kill(self) -> None:
        if self._code() is None:
            os.kill(self.pid, signal.SIGKILL)
        multiprocessing.connection.wait([self._process.sentinel], WAIT_S_MAX)

    def _code(self) -> int | None:
        """None: it runs. Whoever starts another one asks after all, and a code can be read once:
        of two threads that ask at the same time one finds nothing, and takes that for 255."""
        with _one_at_a_time:
            return self._process.exitcode

    def wait_until(self, what: Callable[[], bool], otherwise: str) -> None:
        """While it runs."""
        give_up_at = time.monotonic() + WAIT_S_MAX
        while True:
            is_alive = self._code() is None  # asked first: it may do so and end
            if what():
                return
            assert is_alive, f"{otherwise}, but ended:\n{self._words()}"
            assert time.monotonic() < give_up_at, f"{otherwise}:\n{self._words()}"
            time.sleep(_POLL_S)

    def _words(self) -> str:
        return self._log.read_text() if self._log.exists() else "nothing was said"


def _run(words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    end_with_parent()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(output, number)
    sys.exit(copy.main(words))
