"""The process of a run, as the run uses it: its lock, its session, and what asks it to stop.

A process runs one pipeline or several. A thread looks for the stop marker that `eos stop` writes:
once a second in a folder, and every five seconds in a bucket, where each look is a request. No
micro-batch waits for it. If the marker exists, the run ends as after SIGTERM.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.errors import EosError
from eos.folder import Folder
from eos.observe.events import Event
from eos.plan.plan import Plan
from eos.run.shutdown import Stopping
from eos.startup import stop_marker
from eos.startup.ownership import RunLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.observe.joined_metrics import JoinedMetrics

_TICK_S, _BUCKET_TICK_S = 1.0, 5.0
_JOIN_S = 5.0  # a stat may hang in a network file system


@dataclass(frozen=True, slots=True)
class Shared:
    """The objects that a run shares with the other pipelines of its process.

    `metrics` are served by the process; None if they are not. `note` is called with each event.
    """

    metrics: JoinedMetrics | None
    note: Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Host:
    """The process of a run, as that run uses it. Without `shared`, it runs one pipeline only."""

    stopping: Stopping
    lock: RunLock
    open_session: Callable[[], SparkSession]
    shared: Shared | None = None


@contextmanager
def locked(planned: Plan, stopping: Stopping, *, is_forced: bool) -> Iterator[RunLock]:
    """Hold the pipeline's lock within the context, and watch for the run's stop marker."""
    run_id = uuid.uuid4().hex
    with closing(RunLock(planned, run_id)) as lock:
        lock.acquire(is_forced=is_forced)
        folder = _markers(planned)
        if folder is None:
            yield lock
            return
        with closing(_StopWatch(folder, run_id, stopping)):
            yield lock


def _markers(planned: Plan) -> Folder | None:
    """Return the folder of the stop markers; None without one.

    A login that only Spark has must not end a run that needs the bucket for checkpoints alone.
    `eos stop` reports it."""
    try:
        return stop_marker.markers(planned.names, planned.spark_conf)
    except EosError:
        return None


class _StopWatch:
    """A thread that requests the stop once the folder has the run's marker."""

    def __init__(self, folder: Folder, run_id: str, stopping: Stopping) -> None:
        self._folder, self._run_id, self._stopping = folder, run_id, stopping
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-stop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        every_s = _BUCKET_TICK_S if self._folder.local is None else _TICK_S
        while not self._end.wait(every_s):
            by = stop_marker.read(self._folder, self._run_id)
            if by is not None:
                self._stopping.request(by)
                stop_marker.remove(self._folder, self._run_id)
                return
