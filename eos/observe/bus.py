"""The bus that delivers a run's events to subscribers in a thread of its own.

`emit` never waits and never raises. Events arrive in the order in which they were emitted. An error
of a subscriber affects neither the pipeline nor other subscribers.

An event may not arrive: the queue is bounded. If subscribers are slower than the pipeline for long,
new events are dropped and counted.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from eos.observe.events import Event, Warned

Subscriber = Callable[[Event], None]

_FAILURES_MAX = 3
_CLOSE_TIMEOUT_S = 5.0


class Bus:
    def __init__(self, events_max: int = 1000) -> None:
        self._queue: queue.Queue[Event | None] = queue.Queue(events_max)
        self._subscribers: list[Subscriber] = []
        self._failures: dict[int, int] = {}
        self._dropped = 0
        self._is_started = self._is_closed = False
        # A daemon thread: a subscriber that hangs must not prevent the process from ending.
        self._thread = threading.Thread(target=self._deliver, name="eos-events", daemon=True)
        self._lock = threading.Lock()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a function that is called with all further events.

        It is removed after it has raised three times in a row."""
        with self._lock:
            self._subscribers = [*self._subscribers, subscriber]

    def emit(self, event: Event) -> None:
        """Queue an event and return at once. Drop it if the queue is full or the bus is closed."""
        with self._lock:
            if self._is_closed:
                return
            if not self._is_started:
                self._is_started = True
                self._thread.start()
            try:
                self._queue.put_nowait(event)
            except queue.Full:
                self._dropped += 1

    @property
    def dropped(self) -> int:
        """Return the number of events dropped because the queue was full."""
        return self._dropped

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Stop accepting events. Wait until queued events are delivered, up to `timeout_s`."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed or not self._is_started:
            return
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        self._thread.join(timeout_s)

    def _deliver(self) -> None:
        reported = 0
        # `close` puts None into the queue, which ends this loop. Without `close`, the loop ends
        # with the process.
        for event in iter(self._queue.get, None):
            self._hand_out(event)
            if self._dropped > reported:
                self._hand_out(Warned(f"{self._dropped - reported} events were dropped"))
                reported = self._dropped

    def _hand_out(self, event: Event) -> None:
        for subscriber in self._subscribers:
            key = id(subscriber)
            try:
                subscriber(event)
                self._failures[key] = 0
            except Exception:  # noqa: BLE001 - no error of a subscriber may affect the pipeline
                self._failures[key] = self._failures.get(key, 0) + 1
                if self._failures[key] >= _FAILURES_MAX:
                    self._let_go(subscriber)

    def _let_go(self, subscriber: Subscriber) -> None:
        with self._lock:
            self._subscribers = [each for each in self._subscribers if each is not subscriber]
