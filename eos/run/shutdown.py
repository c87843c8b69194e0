"""SIGTERM and SIGINT end a run cleanly: no new attempt, the open one commits if it can do so
soon and is aborted if not, exit 0.

Spark's own stop interrupts the thread that runs the micro-batch and cancels its job, so an attempt
whose tasks run is lost by it. So it comes when no attempt is open, or the time for that is up.

A second signal ends the process at once, and so does a stop that takes too long, such as of a step
that hangs in the driver. That is a crash like any other: the next start aborts what is open.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from eos.errors import UsageError
from eos.local.processes import last_words
from eos.observe import events

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from eos.transaction.micro_batch import MicroBatches


# How long an open attempt may go on. Kubernetes kills 30 s after its SIGTERM, systemd after 90 and
# Docker after 10: two thirds of the first leave time to abort, to note the clean end, and for the
# JVM. Who is killed all the same has lost nothing: the next start aborts what is open.
FINISH = "EOS_FINISH_S"
FINISH_S = 20.0
_FINISH_S_MAX = 86_400.0
STOP_S_MAX = 300.0  # for the rest of the stop
# A supervisor may signal the launcher, which hands it on, and the driver: that is one signal.
AGAIN_S_MIN = 1.0


class Stopping:
    """Whether somebody asked, from the first moment of the run on.

    Before the query runs, a signal only sets the flag, and the start looks at it between its
    steps. Later the handler runs in the main thread, which is inside a call to the JVM: the stop
    has to go through a connection, hence a thread, of its own.
    """

    def __init__(self) -> None:
        self._finish_s = _finish_s(os.environ.get(FINISH, ""))
        self._asked = threading.Event()
        self._asked_at = 0.0
        self._is_over = False
        self._running: StreamingQuery | None = None
        self._batches: MicroBatches | None = None
        self.listen()

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def listen(self) -> None:
        """Again after SparkContext was made: it installs a SIGINT handler of its own."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        signal.signal(signal.SIGALRM, self._too_late)

    def close(self) -> None:
        """It came to its end in time. A signal from here on has nothing to stop, and its alarm
        would strike whatever the process does next."""
        self._is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def attach(self, running: StreamingQuery, batches: MicroBatches) -> None:
        """Let a signal stop the query once the open micro-batch has ended. A signal that arrived
        before stops it now."""
        self._running, self._batches = running, batches
        if self.is_asked:
            self._stop()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._is_over:
            return
        if self.is_asked:
            if time.monotonic() - self._asked_at >= AGAIN_S_MIN:
                _end("asked to stop again", 128 + number)
            return
        self._asked_at = time.monotonic()
        self._asked.set()
        # No thread: the main one may be about to start another this very moment.
        signal.setitimer(signal.ITIMER_REAL, self._finish_s + STOP_S_MAX)
        if self._running is not None:
            self._stop()

    def _too_late(self, _number: int, _frame: FrameType | None) -> None:
        _end(f"no end within {self._finish_s + STOP_S_MAX:.0f} s", 0)

    def _stop(self) -> None:
        assert self._running is not None
        assert self._batches is not None
        running, batches = self._running, self._batches
        batches.is_stopping = True  # first: no micro-batch begins after it

        def stop() -> None:
            if not batches.is_at_rest(within_s=0):
                batches.bus.emit(events.Stopping(self._finish_s))
                batches.is_at_rest(within_s=self._finish_s)
            with suppress(Exception):  # it may have ended by itself meanwhile
                running.stop()

        threading.Thread(target=stop, name="eos-stop", daemon=True).start()


def _finish_s(text: str) -> float:
    try:
        found = float(text) if text else FINISH_S
    except ValueError:
        found = math.nan
    if not 0 <= found <= _FINISH_S_MAX:
        raise UsageError(
            f"{FINISH} is {text!r}: how long a stop lets an open micro-batch go on",
            hint=f"seconds, from 0 to {_FINISH_S_MAX:.0f}; unset it for {FINISH_S:.0f}",
        )
    return found


def _end(why: str, code: int) -> None:
    """Not by an exception: whatever the main thread waits for might hold it up. And not by `print`:
    the signal may have come in the middle of one."""
    last_words(f"eos: {why}: ended at once; the next start aborts what is open, and goes on\n")
    os._exit(code)
