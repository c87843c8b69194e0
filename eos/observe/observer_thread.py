"""The thread that calls an observer of the user with the events of a run.

Each observer has its own thread and its own queue, so neither the pipeline nor another observer
waits for it. If it fails, it gets the next event. If it hangs or is too slow, events that find its
queue full are dropped and counted. Its first failure and its first dropped event are warnings.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from eos.observe.events import Event

EVENTS_MAX = 1000


class ObserverThread:
    """One observer with its queue and thread. It is a subscriber of the bus.

    `make` returns the observer, a function of an event. It is called in the thread, too, because
    code of the user may hang there. If the observer has a method `close`, it is called at the end.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Callable[[Event], object]],
        warn: Callable[[str], None],
        events_max: int = EVENTS_MAX,
    ) -> None:
        self.name = name
        self.dropped = self.failed = 0
        self._make = make
        self._warn = warn
        self._queue: queue.Queue[Event] = queue.Queue(events_max)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"eos-observer {name}", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        """Queue an event and return at once. Drop it if the queue is full."""
        if not self._thread.is_alive():
            return  # the observer could not be created
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self.dropped += 1
            if self.dropped == 1:
                self._warn(
                    f"observer {self.name} is too slow or hangs: it has {self._queue.maxsize} "
                    "events to handle, and does not get those that it has no room for"
                )

    def end(self) -> None:
        """End the thread once the queued events are handled. Return at once."""
        self._end.set()
        with suppress(queue.Full):  # the thread then wakes up by a queued event
            self._queue.put_nowait(Event())

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            observer = self._make()
        # SystemExit: code of the user that calls `sys.exit` must not end this thread silently.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - no error may affect the run
            self._warn(f"observer {self.name} can't be created, and gets no events: {_text(error)}")
            return
        while True:
            event = self._queue.get()
            if type(event) is not Event:  # the plain class only wakes this thread up
                self._call(observer, event)
            if self._end.is_set() and self._queue.empty():
                break
        close = getattr(observer, "close", None)
        if close is not None:
            self._call(lambda _: close(), Event())

    def _call(self, observer: Callable[[Event], Any], event: Event) -> None:
        try:
            observer(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - no error may affect the run
            self.failed += 1
            if self.failed == 1:
                self._warn(
                    f"observer {self.name} failed, and gets the next event; further failures are "
                    f"not reported: {_text(error)}"
                )


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
