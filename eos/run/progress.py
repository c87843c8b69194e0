"""What Spark tells of a running query, for showing only: it comes late, and decides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def lag_of(progress: Mapping[str, Any] | None) -> int | None:
    """Offsets of the source that the last micro-batch left, those of markers among them. None if
    it did not ask how far the source goes: one that a start takes up again knows its ends."""
    known = [
        each for each in (progress or {}).get("sources", ()) if _read(each.get("latestOffset"))
    ]
    if not known:
        return None
    lags = (
        int(end) - _offset(source.get("endOffset"), topic, partition)
        for source in known
        for topic, ends in _read(source["latestOffset"]).items()
        for partition, end in ends.items()
    )
    return sum(lags)


def _offset(ends: Any, topic: str, partition: str) -> int:
    return int((_read(ends) or {}).get(topic, {}).get(partition, 0))


def _read(offsets: Any) -> Any:
    """PySpark hands them on as Spark wrote them: JSON, as a text or read already."""
    return json.loads(offsets) if isinstance(offsets, str) else offsets
