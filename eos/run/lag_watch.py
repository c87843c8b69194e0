"""The thread that computes a run's lag, in offsets and in seconds.

It compares every few seconds what the run knows already: the ledger's position, the range of
the running micro-batch, and the newest offsets in Spark's progress. It sends no request, and no
micro-batch waits for it.

The end may be out of date: Spark asks for it when it plans a micro-batch, and every ten seconds
while there is nothing to read.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from eos.checkpoint.offset_log import Ranges
from eos.kafka.api import TopicPartition
from eos.ledger.record import Ends
from eos.micro_batch.bounds import Bounds
from eos.observe import events

if TYPE_CHECKING:
    from eos.observe.live import ProgressLine
    from eos.run.query import PipelineQuery
    from eos.transaction.micro_batch import MicroBatches

_TICK_S = 5.0
_ENDS_MAX = 1000  # remembered for each topic


class LagWatch:
    """A thread that emits the lag of the source.

    `progress` is Spark's last progress, `planned` the ranges of the newest micro-batch, and
    `committed` the ledger's position.
    """

    def __init__(
        self,
        progress: Callable[[], Mapping[str, Any] | None],
        planned: Callable[[], Ranges],
        committed: Callable[[], Ends],
        emit: Callable[[events.Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress, self._planned, self._committed = progress, planned, committed
        self._emit = emit
        self._clock = clock
        # By topic: ends of the source, each with the time at which it was first seen.
        self._seen: dict[str, deque[tuple[float, int]]] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-lag", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and emit the last values."""
        self._end.set()
        self._thread.join(_TICK_S)
        if not self._thread.is_alive():
            self.poll()

    def lag_ms(self, ends: Ends) -> int | None:
        """Return the lag that remains after a position, of the topic with the longest one; None if
        no position is known yet.

        It is in milliseconds, and by the same clock as the lag of the events."""
        totals = Counter[str]()
        for tp, end in ends.items():
            totals[tp.topic] += end
        now, known = self._clock(), [(topic, list(seen)) for topic, seen in [*self._seen.items()]]
        waited = [
            next((now - at for at, end in seen if end > totals[topic]), 0.0)
            for topic, seen in known
        ]
        # `poll`, in the watch's thread, may have added an end after `now` was read.
        return max(0, round(max(waited) * 1000)) if waited else None

    def poll(self) -> None:
        progress = None
        with suppress(Exception):  # this queries the JVM, which may be busy or have ended
            progress = self._progress()
        planned = self._planned()
        positions = {**planned.starts, **self._committed()}
        committed, ends = Counter[str](), Counter[str]()
        newest = source_ends(progress)
        for tp, position in positions.items():
            committed[tp.topic] += position
            ends[tp.topic] += max(position, planned.ends.get(tp, 0), newest.get(tp, 0))
        if committed:
            seconds = {topic: self._seconds(topic, committed[topic], ends[topic]) for topic in ends}
            self._emit(events.SourceLag(dict(committed), dict(ends), seconds))

    def _seconds(self, topic: str, committed: int, end: int) -> float:
        seen, now = self._seen.setdefault(topic, deque()), self._clock()
        if not seen or end > seen[-1][1]:
            if len(seen) >= _ENDS_MAX:  # keep every second one: the oldest matters, not the number
                self._seen[topic] = seen = deque(list(seen)[::2])
            seen.append((now, end))
        while seen and seen[0][1] <= committed:
            seen.popleft()
        return now - seen[0][0] if seen else 0.0

    def _run(self) -> None:
        while not self._end.wait(_TICK_S):
            self.poll()


@contextmanager
def following_lag(
    running: Any,
    query: PipelineQuery,
    batches: MicroBatches,
    live: ProgressLine | None,
) -> Iterator[None]:
    """Follow the lag of Spark's query `running` within the context: on the progress line, as
    events, and in ledger records."""
    plan, bounds = query.stages.plan, query.stages.bounds
    if live is not None:
        is_bounded = bounds is not None or plan.trigger_every_ms is None
        live.follow(lambda: _left(running, bounds, batches), is_bounded=is_bounded)
    if plan.is_dataframe:  # its source's offsets are not known
        yield
        return
    watch = LagWatch(
        lambda: running.lastProgress,
        lambda: query.planned,
        lambda: batches.position.ends,
        batches.bus.emit,
    )
    batches.measures.lag_ms = watch.lag_ms
    watch.start()
    try:
        yield
    finally:
        watch.stop()


def _left(running: Any, bounds: Bounds | None, batches: MicroBatches) -> int | None:
    if bounds is None:
        return lag_of(running.lastProgress)
    return bounds.left(batches.position.ends)


def source_ends(progress: Mapping[str, Any] | None) -> Ends:
    """Return the newest source offsets that Spark asked Kafka for; empty if it did not ask."""
    return _ends(progress, "latestOffset")


def lag_of(progress: Mapping[str, Any] | None) -> int | None:
    """Return how many source offsets remained unread after the last micro-batch.

    Offsets of transaction markers count, too. Return None if Spark did not ask Kafka for the newest
    offsets, as for a micro-batch that is run again after a restart.
    """
    newest, read = source_ends(progress), _ends(progress, "endOffset")
    return sum(end - read.get(tp, 0) for tp, end in newest.items()) if newest else None


def _ends(progress: Mapping[str, Any] | None, key: str) -> Ends:
    return {
        TopicPartition(topic, int(partition)): int(end)
        for source in (progress or {}).get("sources", ())
        for topic, ends in (_read(source.get(key)) or {}).items()
        for partition, end in ends.items()
    }


def _read(offsets: Any) -> Any:
    """Return the offsets as a value. PySpark passes them either as JSON text or parsed, and 4.0
    passes missing ones as the text "None"."""
    if offsets == "None":
        return None
    return json.loads(offsets) if isinstance(offsets, str) else offsets
