"""Hold a run's lock, and end the run if `eos stop` asks for it.

A thread looks for the run's stop marker once a second: one stat, and no micro-batch waits for it.
If the marker exists, the run ends as after SIGTERM.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from eos.plan.plan import Plan
from eos.run.shutdown import Stopping
from eos.startup import stop_marker
from eos.startup.ownership import RunLock

_TICK_S = 1.0
_JOIN_S = 5.0  # a stat may hang in a network file system


@contextmanager
def locked(planned: Plan, stopping: Stopping, *, is_forced: bool) -> Iterator[RunLock]:
    """Hold the pipeline's lock within the context, and watch for the run's stop marker."""
    run_id = uuid.uuid4().hex
    with closing(RunLock(planned, run_id)) as lock:
        lock.acquire(is_forced=is_forced)
        if not planned.names.stops:
            yield lock
            return
        with closing(_StopWatch(Path(planned.names.stops), run_id, stopping)):
            yield lock


class _StopWatch:
    """A thread that requests the stop once the marker exists."""

    def __init__(self, folder: Path, run_id: str, stopping: Stopping) -> None:
        self._folder, self._run_id, self._stopping = folder, run_id, stopping
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-stop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._end.wait(_TICK_S):
            by = stop_marker.read(self._folder, self._run_id)
            if by is not None:
                self._stopping.request(by)
                return
