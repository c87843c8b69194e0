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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from eos.errors import UsageError
from eos.local.processes import announce_end, last_words
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


class Stoppable(Protocol):
    """Spark's work of a run: a streaming query, or the jobs of a batch run."""

    def stop(self) -> None: ...


class Stopping:
    """The request to stop one pipeline.

    Before the query runs, a request only sets a flag, which the startup checks between its steps.
    While the query runs, its thread waits in a call to the JVM, which blocks its connection. So
    another thread stops the query over another connection.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.finish_s = _finish_s(os.environ.get(FINISH, ""))
        self.is_requested = False
        self.is_over = False
        self._on_change = on_change
        self._requested_by = ""
        # `put` may be called in a signal handler, which may interrupt another `put`. A
        # `threading.Event` may not: its lock could then never be released.
        self._wake: SimpleQueue[None] = SimpleQueue()

    @property
    def reason(self) -> str:
        """Return why the run ends, and who asked for it if that is known; "" without a request."""
        by = f" by {self._requested_by}" if self._requested_by else ""
        return f"asked to stop{by}" if self.is_requested else ""

    def request(self, by: str = "") -> None:
        """Stop the pipeline. `by` is who asked for it. Any thread and a signal handler may call
        this. After an earlier request it does nothing."""
        if self.is_requested or self.is_over:
            return
        self._requested_by, self.is_requested = by, True
        self._wake.put(None)
        self._on_change()

    def end(self) -> None:
        """Ignore later requests, because the pipeline has ended."""
        self.is_over = True
        self._on_change()

    def wait(self, timeout_s: float) -> bool:
        """Wait for a request, and return whether there is one."""
        with suppress(Empty):
            self._new_wake().get(timeout=timeout_s)
        return self.is_requested

    @contextmanager
    def attached(self, running: Stoppable, batches: MicroBatches) -> Iterator[None]:
        """Within the context, let a request stop this query once its open micro-batch has ended. If
        it was requested before, stop the query now."""
        wake = self._new_wake()

        def stop() -> None:
            wake.get()
            if not self.is_requested:
                return  # the context has ended
            batches.is_stopping = True  # first, so that no attempt begins during the wait
            if not batches.is_at_rest(within_s=0):
                batches.bus.emit(events.Stopping(self.finish_s))
                batches.is_at_rest(within_s=self.finish_s)
            with suppress(Exception):  # stop() fails if the query has ended already
                running.stop()

        threading.Thread(target=stop, name="eos-stop", daemon=True).start()
        try:
            yield
        finally:
            wake.put(None)

    def _new_wake(self) -> SimpleQueue[None]:
        """Return a queue in which the request puts an item."""
        self._wake = wake = SimpleQueue[None]()
        if self.is_requested:
            wake.put(None)
        return wake


class StopSignals:
    """The handler of SIGTERM and SIGINT, which stops all pipelines of this process.

    Once all pipelines that still run were asked to stop, by a signal or by `eos stop`, the process
    has a time limit. Before that, a pipeline whose stop hangs leaves the others running.
    """

    def __init__(self, pipelines: int = 1) -> None:
        self.stops = [Stopping(self._limit) for _ in range(pipelines)]
        self.exit_code: Callable[[], int] = lambda: 0  # of a process whose stop takes too long
        self._limited_at: float | None = None  # when the time limit began
        self._is_over = False
        self.listen()

    def listen(self) -> None:
        """Install the signal handlers. Call it again after SparkContext was created, since that
        installs a SIGINT handler of its own."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        signal.signal(signal.SIGALRM, self._too_late)

    def close(self) -> None:
        """Ignore later signals and cancel the alarm, because all runs have ended. The alarm would
        kill the process in its remaining work."""
        self._is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._is_over:
            return
        if self._limited_at is None:
            for each in self.stops:
                each.request()
        elif time.monotonic() - self._limited_at >= AGAIN_S_MIN:
            _end("second signal to stop", 128 + number)

    def _limit(self) -> None:
        running = [each for each in self.stops if not each.is_over]
        if running and self._limited_at is None and all(each.is_requested for each in running):
            self._limited_at = time.monotonic()
            # An alarm signal needs no thread. A signal handler must not start one: it may have
            # interrupted the start of another thread, which holds a lock of the threading module.
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    @property
    def _seconds(self) -> float:
        return self.stops[0].finish_s + STOP_S_MAX

    def _too_late(self, _number: int, _frame: FrameType | None) -> None:
        _end(f"not stopped within {self._seconds:.0f} s", self.exit_code())


def end_query(running: StreamingQuery) -> None:
    """Stop the query if it is still active after an error ended its run: this process may run other
    pipelines.

    Spark's stop has no time limit, so wait at most STOP_S_MAX. A query that survives it can't
    commit, since the next run fences it.
    """

    def stop() -> None:
        with suppress(Exception):
            if running.isActive:
                running.stop()

    stopping = threading.Thread(target=stop, name="eos-end-query", daemon=True)
    stopping.start()
    stopping.join(STOP_S_MAX)


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
    announce_end(code)
    os._exit(code)
