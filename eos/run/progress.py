"""How much of its source has a running query not read yet?

The figure is for display only. Spark reports it late, so no decision depends on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def lag_of(progress: Mapping[str, Any] | None) -> int | None:
    """Return how many source offsets remain after the last micro-batch.

    Offsets of transaction markers count, too. None if the micro-batch did not ask Kafka for the
    newest offsets: one that is run again after a restart has its range already.
    """
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
    """Return the offsets as a value. PySpark passes JSON either as a text or parsed."""
    return json.loads(offsets) if isinstance(offsets, str) else offsets
