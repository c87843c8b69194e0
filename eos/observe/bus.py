"""Hands events to whoever listens, on a thread of its own.

Guarantees: `emit` never waits and never raises; events arrive in the order in which they were
emitted; a subscriber that fails loses its own events and hurts neither the pipeline nor another.
Not guaranteed: that every event arrives. When subscribers are slower than the pipeline for long,
new events are dropped and counted, since memory is bounded.
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
        # A daemon: a subscriber that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._deliver, name="eos-events", daemon=True)
        self._lock = threading.Lock()

    def subscribe(self, subscriber: Subscriber) -> None:
        """From the next event on. After three failures in a row a subscriber is let go."""
        with self._lock:
            self._subscribers = [*self._subscribers, subscriber]

    def emit(self, event: Event) -> None:
        """Returns at once; drops the event if the queue is full or the bus closed."""
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
        """How many events found no room."""
        return self._dropped

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Lets subscribers see what is queued, for so long and no longer."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if was_closed or not self._is_started:
            return
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        self._thread.join(timeout_s)

    def _deliver(self) -> None:
        told = 0
        # Ends with the None of `close`, at the latest with the process.
        for event in iter(self._queue.get, None):
            self._hand_out(event)
            if self._dropped > told:
                self._hand_out(Warned(f"{self._dropped - told} events were dropped"))
                told = self._dropped

    def _hand_out(self, event: Event) -> None:
        for subscriber in self._subscribers:
            key = id(subscriber)
            try:
                subscriber(event)
                self._failures[key] = 0
            except Exception:  # noqa: BLE001 - whatever it is, it is not the pipeline's problem
                self._failures[key] = self._failures.get(key, 0) + 1
                if self._failures[key] >= _FAILURES_MAX:
                    self._let_go(subscriber)

    def _let_go(self, subscriber: Subscriber) -> None:
        with self._lock:
            self._subscribers = [each for each in self._subscribers if each is not subscriber]
