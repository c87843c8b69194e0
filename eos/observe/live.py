"""The progress line of a run on a terminal, below the lines of events:

    eos: orders | 48,210 records/s | lag 1,204 offsets | micro-batch 42: commits, 3 s | 41 committed

A separate thread draws the line at most twice per second, so the pipeline never waits for it. If
the terminal accepts no output (Ctrl-S), only that thread and those that print wait. The line is
never wider than the terminal. If a terminal that wraps lines anew becomes narrower, a part of the
line may remain on the screen. So it may if something prints to stdout, or not through Python.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from eos.faults import Dies
from eos.observe import events
from eos.observe.backlog import Backlog
from eos.observe.bus import Bus
from eos.observe.console import Console, read, size

if TYPE_CHECKING:
    from rich.text import Text

    from eos.observe.bottom_line import Terminal

# The launcher sets this environment variable to the width and the device of the terminal, if there
# is one: `80:/dev/pts/3`. The driver can't find them out, because its output goes through a pipe.
TERMINAL = "EOS_TERMINAL"
_DRAW_S = 0.5
_RATE_S = 10.0
_COMMITS_MAX = 1000  # commits to keep; if there are more within _RATE_S, the rate is too low
_LAST = 3
_CLOSE_S = 1.0
_COMMITTED, _FAILED, _RETRIED = "committed", "failed", "retried"
_STARTS, _WAITS = "starts", "waits for records"
_STEPS = {
    "begin:after": "reads, transforms and writes",
    "all_acked:before": "is acknowledged",
    "ledger_record:before": "writes the ledger record",
    "offsets:before": "writes the offsets",
    "end_txn_sent:before": "commits",
    "end_txn_answered:after": _WAITS,
}


class ProgressLine:
    """The progress line of a run.

    It gets events from the bus. The pipeline's step, such as "commits", it gets from the crash
    points, which the pipeline passes between its steps."""

    def __init__(
        self,
        pipeline: str,
        stream: TextIO,
        terminal: Terminal,
        clock: Callable[[], float] = time.monotonic,
        is_asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        # Late: without a terminal rich is not needed.
        from eos.observe.bottom_line import BottomLine

        self.lag: Callable[[], int | None] = lambda: None
        self.is_asked_to_stop = is_asked_to_stop
        self._pipeline, self._clock = pipeline, clock
        self._bottom = BottomLine(stream, terminal)
        self._console = Console(self._bottom.above, has_colour=True)
        self._lock = threading.Lock()  # for the counts below, never while writing
        self._end = threading.Event()
        self._point = ("", clock())
        self._began = clock()
        self._commits: deque[tuple[float, int]] = deque(maxlen=_COMMITS_MAX)
        self._backlog = Backlog(clock)
        self._last: deque[tuple[int, str]] = deque(maxlen=_LAST)
        self._running: int | str = "runs"  # the number of the micro-batch; unknown at first
        self._counted = -1  # the last micro-batch in the total
        self._total = [0, 0, 0, 0]  # micro-batches, offsets in, records out, bytes
        self._records_in: int | None = 0
        self._thread = threading.Thread(target=self._draw, name="eos-live", daemon=True)

    @property
    def above(self) -> TextIO:
        """A stream for further lines: they appear above the progress line."""
        return self._bottom.above

    def __call__(self, event: events.Event) -> None:
        with self._lock:
            if isinstance(event, events.MicroBatchCommitted):
                self._count_commit(event)
                return
            if isinstance(event, events.AttemptStarted):
                self._running = event.batch_id
            elif isinstance(event, events.AttemptFailed):
                self._mark(event.batch_id, _FAILED)
            elif isinstance(event, events.AttemptRetried):
                self._mark(event.batch_id, _RETRIED)
        if isinstance(event, events.Stopped):
            self.above.write(self._summary())
        self._console(event)

    def follow(self, lag: Callable[[], int | None], *, is_bounded: bool) -> None:
        """Show this lag, and for a run that ends on its own a bar from its begin on."""
        self.lag, self._backlog.is_bounded = lag, is_bounded

    def reached(self, point: str) -> None:
        """Note which step the pipeline is at. `point` is the crash point that it just passed."""
        _, _, name = point.rpartition(".")
        if name in _STEPS:
            self._point = (point, self._clock())
        if point == "begin:after":
            self._backlog.begin()

    def watching(self, plan: Dies) -> Dies:
        return _ReportedPlan(plan, self)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop drawing the progress line. Further events are printed as lines of their own."""
        self._end.set()
        self._thread.join(_CLOSE_S)

    def line(self) -> Text:
        """Return the progress line, cut to the terminal's width."""
        from rich.text import Text

        lag = None
        with suppress(Exception):  # the lag comes from the JVM, which may be busy or have ended
            lag = self.lag()
        now = self._clock()
        point, since = self._point
        with self._lock:
            parts = [
                Text(f"eos: {self._pipeline}"),
                Text(f"{self._rate(now):,.0f} records/s"),
                self._remaining(lag),
                Text(f"{self._doing(point, lag)}, {now - since:.0f} s"),
                Text(", ".join(f"{batch_id} {end}" for batch_id, end in reversed(self._last))),
            ]
        return self._bottom.cut(Text(" | ").join(filter(None, parts)))

    def _remaining(self, lag: int | None) -> Text:
        from rich.text import Text

        found = self._backlog.remaining(lag)
        if found.share is None:
            return Text(found.lag)
        done = ", ".join(filter(None, [f"{int(found.share * 100)} %", found.left]))
        return Text(" ").join([Text(found.lag), self._bottom.bar(found.share), Text(done)])

    def _doing(self, point: str, lag: int | None) -> str:
        step = self._step(point)
        waits = "waits for the trigger" if lag else _WAITS
        if not self.is_asked_to_stop():
            return waits if step == _WAITS else step
        return "stops" if step in (_STARTS, _WAITS) else f"stops; {step}"

    def _step(self, point: str) -> str:
        if not point:
            return _STARTS
        kind, _, name = point.rpartition(".")
        step = _STEPS[name]
        if step == _WAITS:
            return step
        return f"records its {kind}" if kind else f"micro-batch {self._running}: {step}"

    def _draw(self) -> None:
        with suppress(OSError, ValueError), self._bottom.shown():  # the terminal may be gone
            while not self._end.wait(_DRAW_S):
                self._bottom.draw(self.line())

    def _count_commit(self, event: events.MicroBatchCommitted) -> None:
        count = event.offsets_in if event.records_in is None else event.records_in
        self._commits.append((self._clock(), count))
        self._backlog.committed(event.offsets_in)
        self._mark(event.batch_id, _COMMITTED)
        if self._records_in is not None:
            known = event.records_in
            self._records_in = None if known is None else self._records_in + known
        is_new = event.batch_id != self._counted  # and no further part of one (`max_bytes`)
        self._counted = event.batch_id
        counted = (int(is_new), event.offsets_in, event.records_out, event.bytes_out)
        self._total = [a + b for a, b in zip(self._total, counted, strict=True)]

    def _mark(self, batch_id: int, result: str) -> None:
        """Note how an attempt of a micro-batch ended.

        If the attempt before it did not commit, a commit is noted as "committed after a retry".
        With `max_bytes`, a micro-batch has several commits."""
        if self._last and self._last[-1][0] == batch_id:
            _, before = self._last.pop()
            is_retry = result == _COMMITTED and not before.startswith(_COMMITTED)
            result = f"{result} after a retry" if is_retry else result
        self._last.append((batch_id, result))

    def _rate(self, now: float) -> float:
        """Return the records per second that were committed during the last ten seconds."""
        recent = [count for at, count in list(self._commits) if now - at <= _RATE_S]
        return sum(recent) / max(min(_RATE_S, now - self._began), 1.0)

    def _summary(self) -> str:
        count, offsets_in, records_out, size_out = self._total
        subject = "micro-batch" if count == 1 else "micro-batches"
        return (
            f"eos: {count:,} {subject} committed: {read(self._records_in, offsets_in)}, "
            f"{records_out:,} out, {size(size_out)}\n"
        )


@dataclass(frozen=True, slots=True)
class _ReportedPlan:
    """Wrapper of a crash plan that also reports each crash point to the progress line."""

    plan: Dies
    live: ProgressLine

    @property
    def point(self) -> str:
        return self.plan.point

    def reached(self, point: str) -> None:
        self.live.reached(point)
        self.plan.reached(point)


@contextmanager
def show_events(
    bus: Bus, pipeline: str, is_asked_to_stop: Callable[[], bool] = lambda: False
) -> Iterator[ProgressLine | None]:
    """Print the events of `bus` on stderr within the context.

    On a terminal, also show the progress line, and yield it. Otherwise yield None."""
    columns, _, device = os.environ.get(TERMINAL, "").partition(":")
    if not columns.isdecimal():
        bus.subscribe(Console())
        yield None
        return
    from eos.observe.bottom_line import Terminal

    terminal = Terminal(int(columns), device)
    live = ProgressLine(pipeline, sys.stderr, terminal, is_asked_to_stop=is_asked_to_stop)
    bus.subscribe(live)
    live.start()
    try:
        with redirect_stderr(live.above):  # for lines that are no events
            yield live
    finally:
        live.close()
