"""SIGTERM and SIGINT end a run cleanly: no new attempt, the open one is aborted, exit 0."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from eos.transaction.micro_batch import MicroBatches


class Stopping:
    """Whether somebody asked, from the first moment of the run on.

    Before the query runs, a signal only sets the flag, and the start looks at it between its
    steps. Later the handler runs in the main thread, which is inside a call to the JVM: the stop
    has to go through a connection, hence a thread, of its own.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
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

    def attach(self, running: StreamingQuery, batches: MicroBatches | None = None) -> None:
        """From here on a signal stops the query; one that came before does so now."""
        self._running, self._batches = running, batches
        if self.is_asked:
            self._stop()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        is_first = not self.is_asked
        self._asked.set()
        if is_first and self._running is not None:
            self._stop()

    def _stop(self) -> None:
        assert self._running is not None
        if self._batches is not None:
            self._batches.is_stopping = True
        running = self._running

        def stop() -> None:
            with suppress(Exception):  # it may have ended by itself meanwhile
                running.stop()

        threading.Thread(target=stop, name="eos-stop", daemon=True).start()
