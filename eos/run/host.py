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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from eos.errors import EosError
from eos.folder import Folder
from eos.observe.events import Event
from eos.plan.plan import Plan
from eos.run.shutdown import Stopping
from eos.startup import bucket_stop, stop_marker
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
        bucket = _bucket(planned)
        if planned.names.stops:
            look, every_s = partial(stop_marker.read, Path(planned.names.stops), run_id), _TICK_S
        elif bucket is not None:
            look, every_s = partial(bucket_stop.requested_by, bucket, run_id), _BUCKET_TICK_S
        else:
            yield lock
            return
        with closing(_StopWatch(look, every_s, stopping)):
            yield lock


def _bucket(planned: Plan) -> Folder | None:
    """Return the folder of the stop markers in a bucket; None without one.

    A login that only Spark has must not end a run that needs the bucket for checkpoints alone.
    `eos stop` reports it."""
    try:
        return bucket_stop.markers(planned.names, planned.spark_conf)
    except EosError:
        return None


class _StopWatch:
    """A thread that requests the stop once `look` returns who asks for it."""

    def __init__(self, look: Callable[[], str | None], every_s: float, stopping: Stopping) -> None:
        self._look, self._every_s, self._stopping = look, every_s, stopping
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos-stop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            by = self._look()
            if by is not None:
                self._stopping.request(by)
                return
