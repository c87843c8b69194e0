"""The process of a run, as the run uses it. A process runs one pipeline or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eos.observe.events import Event
from eos.run.shutdown import Stopping
from eos.startup.ownership import RunLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eos.observe.joined_metrics import JoinedMetrics


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
