"""End a run after SIGTERM, SIGINT or `eos stop`.

After the first request no attempt begins. The open attempt may commit within a time limit; if not,
it is aborted. The exit code is 0, unless a restart would meet an error again.

Spark's own stop interrupts the thread of the micro-batch and cancels its job, which fails a running
attempt. So Spark is stopped once no attempt is open, or once the time limit has passed.

A second signal ends the process at once. So does a stop that takes too long, for instance because a
step hangs in the driver. Both are crashes: the next run aborts the open transaction.
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


# How long an open attempt may take to commit after a signal. Kubernetes kills a process 30 s after
# its SIGTERM, systemd after 90 s, Docker after 10 s. The default is two thirds of Kubernetes' time.
# The rest is for aborting, writing the clean end, and ending the JVM. A process that is killed
# earlier loses nothing: the next run aborts the open transaction.
FINISH = "EOS_FINISH_S"
FINISH_S = 20.0
_FINISH_S_MAX = 86_400.0
STOP_S_MAX = 300.0  # further seconds for Spark to stop; then the process ends
# A supervisor may signal both the driver and the launcher, which forwards the signal to the driver.
# Signals within this time count as one.
AGAIN_S_MIN = 1.0


class Stopping:
    """The handler of SIGTERM and SIGINT.

    Before the query runs, a signal only sets a flag, which the startup checks between its steps.
    While the query runs, the main thread waits in a call to the JVM, which blocks its connection.
    So a new thread stops the query over another connection.
    """

    def __init__(self) -> None:
        self._finish_s = _finish_s(os.environ.get(FINISH, ""))
        self._requested = threading.Event()
        self._requested_at = 0.0
        self._is_over = False
        self._requested_by = ""
        self._running: StreamingQuery | None = None
        self._batches: MicroBatches | None = None
        self.listen()

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    @property
    def reason(self) -> str:
        """Return why the run ends, and who asked for it if that is known; "" without a request."""
        by = f" by {self._requested_by}" if self._requested_by else ""
        return f"asked to stop{by}" if self.is_requested else ""

    def request(self, by: str) -> None:
        """Stop as after SIGTERM, from a thread of this process. `by` is who asked for it.

        After an earlier request, this does nothing: only a second signal ends the process at once.
        """
        if not self.is_requested:
            self._requested_by = by
            # To the main thread: a signal that another thread gets does not interrupt its calls.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def listen(self) -> None:
        """Install the signal handlers. Call it again after SparkContext was created, since that
        installs a SIGINT handler of its own."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        signal.signal(signal.SIGALRM, self._too_late)

    def close(self) -> None:
        """Ignore later signals and cancel the alarm, because the run has ended. The alarm would
        kill the process in its remaining work."""
        self._is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def attach(self, running: StreamingQuery, batches: MicroBatches) -> None:
        """Let a signal stop this query once its open micro-batch has ended. If a signal arrived
        before this call, stop it now."""
        self._running, self._batches = running, batches
        if self.is_requested:
            self._stop()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._is_over:
            return
        if self.is_requested:
            if time.monotonic() - self._requested_at >= AGAIN_S_MIN:
                _end("second signal to stop", 128 + number)
            return
        self._requested_at = time.monotonic()
        self._requested.set()
        # The time limit is an alarm signal, not a timer thread. The stop signal may interrupt the
        # main thread while it is starting a thread and holds a lock of the threading module.
        # Starting another thread here could then deadlock.
        signal.setitimer(signal.ITIMER_REAL, self._finish_s + STOP_S_MAX)
        if self._running is not None:
            self._stop()

    def _too_late(self, _number: int, _frame: FrameType | None) -> None:
        _end(f"not stopped within {self._finish_s + STOP_S_MAX:.0f} s", 0)

    def _stop(self) -> None:
        assert self._running is not None
        assert self._batches is not None
        running, batches = self._running, self._batches
        batches.is_stopping = True  # first, so that no attempt begins during the wait

        def stop() -> None:
            if not batches.is_at_rest(within_s=0):
                batches.bus.emit(events.Stopping(self._finish_s))
                batches.is_at_rest(within_s=self._finish_s)
            with suppress(Exception):  # stop() fails if the query has ended already
                running.stop()

        threading.Thread(target=stop, name="eos-stop", daemon=True).start()


def _finish_s(text: str) -> float:
    try:
        found = float(text) if text else FINISH_S
    except ValueError:
        found = math.nan
    if not 0 <= found <= _FINISH_S_MAX:
        raise UsageError(
            "finish_time_invalid",
            f"{FINISH} is {text!r}; expected seconds, from 0 to {_FINISH_S_MAX:.0f}",
            hint="it limits how long a run that is stopped waits for its open micro-batch; unset "
            f"it for {FINISH_S:.0f}",
        )
    return found


def _end(reason: str, code: int) -> None:
    """Write the reason to the terminal and end the process at once, with this exit code.

    It raises no exception, since the main thread may hang and never handle one. It does not use
    `print`, since the signal may have interrupted a `print`.
    """
    last_words(f"{reason}: ended at once; the next run aborts the open transaction")
    os._exit(code)
