"""The source's lag over time: its ends at several moments minus the pipeline's position then.

The audit table has the positions. The ends are those of the cluster, by the records' timestamps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from eos.inspect.audit_live import ClusterState
from eos.kafka.api import TopicPartition
from eos.ledger.record import Ends
from eos.report.charts import placed
from eos.report.content import PageContent

# Moments, and lookups of a partition at a moment: each is a read of an index on a broker.
MOMENTS_MAX, _MOMENTS_MIN, _LOOKUPS_MAX = 60, 4, 6000


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag in offsets at the end of the intervals from `slot` on. None if it is unknown."""

    slot: int
    offsets: int | None


def intervals_each(content: PageContent) -> int:
    """Return how many intervals of the timeline have one moment."""
    rooms = _LOOKUPS_MAX // max(1, len(content.position))
    count = min(MOMENTS_MAX, max(_MOMENTS_MIN, rooms))
    return max(1, -(-content.timeline.length // count))


def moments(content: PageContent) -> list[datetime]:
    """Return the moments for which the lag needs the ends of the source."""
    line, each = content.timeline, intervals_each(content)
    return [line.start_of(line.first + slot + each) for slot in range(0, line.length, each)]


def lags(content: PageContent, cluster: ClusterState | None) -> list[Lag]:
    """Return the lag at each moment, oldest first."""
    each = intervals_each(content)
    left = deque(placed(content.timeline))
    position = dict(content.began)
    found = []
    for number, at in enumerate(moments(content)):
        slot = number * each
        while left and left[0][0] < slot + each:
            position.update(left.popleft()[1].position)
        ends = cluster.past.by_time.get(at) if cluster else None
        known = _between(position, ends, cluster.past.starts) if cluster and ends else None
        found.append(Lag(slot, known))
    return found


def _between(position: Mapping[TopicPartition, int], ends: Ends, starts: Ends) -> int | None:
    """Return the number of offsets from a position to these ends; None if it is unknown.

    A partition that was deleted is left out."""
    lag = 0
    for tp, at in position.items():
        end = ends.get(tp, at)
        if end > at and 0 < end <= starts[tp]:
            return None  # records of that time were deleted
        lag += max(0, end - at)
    return lag
