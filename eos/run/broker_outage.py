"""Report that no broker answers, since when, and when one answers again.

Each request is retried by its own caller, quietly, until a deadline that may be a minute away; and
Spark's source has a client of its own, which retries, too. So an outage would show late and in many
words. This watch is the one place that reports it. It looks when the driver's client last had an
answer, and asks a broker itself if that was seconds ago: a pipeline without new data asks nothing.

Guarantees: reported at most 15 s after the last answer, once for each outage. One small request in
four seconds at most. Not guaranteed: that each broker answers. One that does is no outage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from eos.deadline import Deadline
from eos.errors import EosError, NoAnswerError, UnavailableError
from eos.kafka.client import KafkaClient
from eos.observe import events
from eos.observe.bus import Bus

# Two rounds, each a pause and a question without an answer, after a quiet time: 14 s.
_TICK_S = 2.0
_QUIET_S = 4.0
_SILENT_S = 7.0
_ASK_MS = 3_000


class Answers(Protocol):
    """What the watch needs of a `KafkaClient`."""

    @property
    def answered_at(self) -> float: ...

    def refresh_metadata(self, topics: tuple[str, ...], deadline: Deadline) -> None: ...


class BrokerWatch:
    """`clock` is the one of `answered_at`, `now` the time of day."""

    def __init__(
        self,
        wire: Answers,
        emit: Callable[[events.Event], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._wire = wire
        self._emit = emit
        self._clock = clock
        self._now = now
        self._silent_since: float | None = None  # as reported
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-brokers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when nothing of it is under way: its requests have a deadline."""
        self._end.set()
        self._thread.join()

    def look(self) -> None:
        """Ask a broker if none has answered for seconds, and report what changed."""
        since = self._wire.answered_at
        failure = self._ask() if self._clock() - since >= _QUIET_S else None
        if failure is None:
            self._answered()
            return
        silent_s = self._clock() - since
        if self._silent_since is None and silent_s >= _SILENT_S:
            self._silent_since = since
            words, hint = failure.message, failure.hint
            self._emit(events.BrokersSilent(self._now() - silent_s, silent_s, words, hint))

    def _ask(self) -> EosError | None:
        """Return why no broker answered. A broker that refuses the request has answered."""
        try:
            self._wire.refresh_metadata((), Deadline.after_ms(_ASK_MS))
        except (NoAnswerError, UnavailableError) as error:
            return error
        except EosError:
            return None
        return None

    def _answered(self) -> None:
        since, self._silent_since = self._silent_since, None
        if since is not None:
            self._emit(events.BrokersAnswer(self._clock() - since))

    def _run(self) -> None:
        while not self._end.wait(_TICK_S):
            self.look()


@contextmanager
def watching_brokers(wire: KafkaClient, bus: Bus) -> Iterator[None]:
    watch = BrokerWatch(wire, bus.emit)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
