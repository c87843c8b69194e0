"""Detect since when no broker has answered, and when one answers again.

Callers retry their requests silently, some for a minute. Spark's source has a client of its own,
which retries, too. Without this watch an outage would be reported late, by several components. The
watch checks when the driver's client last got an answer. If that was four seconds ago, the watch
sends a small request, since an idle pipeline sends none.

Guarantees: an outage is reported once, at most 15 s after the last answer. The watch sends at most
one request in two seconds. Not guaranteed: that every broker answers. As long as one broker
answers, there is no outage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from eos.deadline import Deadline
from eos.errors import EosError, NoAnswerError, UnavailableError
from eos.kafka.client import KafkaClient
from eos.observe import events
from eos.observe.bus import Bus

# An outage is reported after 14 s at most: 4 s without an answer, then two rounds of a pause (2 s)
# and a request without an answer (3 s).
_TICK_S = 2.0
_QUIET_S = 4.0
_SILENT_S = 7.0
_ASK_MS = 3_000


class Answers(Protocol):
    """The part of a `KafkaClient` that the watch uses."""

    @property
    def answered_at(self) -> float: ...

    def refresh_metadata(self, topics: tuple[str, ...], deadline: Deadline) -> None: ...


class BrokerWatch:
    """A thread that reports when all brokers stop answering, and when one answers again.

    `clock` is the clock of `answered_at`. `now` returns the time of day.
    """

    def __init__(
        self,
        client: Answers,
        emit: Callable[[events.Event], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._emit = emit
        self._clock = clock
        self._now = now
        self._silent_since: float | None = None  # None: no outage has been reported
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-brokers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it. Its requests have deadlines, so the wait is bounded."""
        self._end.set()
        self._thread.join()

    def poll(self) -> None:
        """Send a request if no broker has answered for four seconds. Report an outage when it
        begins or ends."""
        since = self._client.answered_at
        failure = self._query() if self._clock() - since >= _QUIET_S else None
        if failure is None:
            self._end_outage()
            return
        silent_s = self._clock() - since
        if self._silent_since is None and silent_s >= _SILENT_S:
            self._silent_since = since
            message, hint = failure.message, failure.hint
            self._emit(events.BrokersSilent(self._now() - silent_s, silent_s, message, hint))

    def _query(self) -> EosError | None:
        """Send a small request. Return the error if no broker answered, else None: a rejection is
        an answer."""
        try:
            self._client.refresh_metadata((), Deadline.after_ms(_ASK_MS))
        except (NoAnswerError, UnavailableError) as error:
            return error
        except EosError:
            return None
        return None

    def _end_outage(self) -> None:
        since, self._silent_since = self._silent_since, None
        if since is not None:
            self._emit(events.BrokersAnswer(self._clock() - since))

    def _run(self) -> None:
        while not self._end.wait(_TICK_S):
            self.poll()


@contextmanager
def watching_brokers(clients: Collection[KafkaClient], bus: Bus) -> Iterator[None]:
    """Watch the brokers of each client's cluster within the context."""
    with ExitStack() as stack:
        for client in clients:
            watch = BrokerWatch(client, bus.emit)
            watch.start()
            stack.callback(watch.stop)
        yield
